"""Predictions for the rows of a DataFrame: ``TorchModel.transform`` beside Spark's ``predict_batch_udf``.

    python benchmarks/spark_transform.py --rows 1000000

Both run the same net of PyTorch over an array of 32 floats, on two slots of this machine, and their outputs
are summed up. Prints the rows per second of the best of some runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import numpy as np
import torch
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as sql

from horovod.spark.common.dataset import Column
from horovod.spark.torch import TorchModel

WIDTH = 32


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def by_horovod(frame: DataFrame) -> DataFrame:
    columns = {"x": Column("x", "float32", (WIDTH,), "array"), "y": Column("y", "float32", (), "scalar")}
    described = {"columns": columns, "shapes": [[1]]}
    values = {"model": net(), "feature_columns": ["x"], "label_columns": ["y"], "_metadata": described}
    return TorchModel(**values).transform(frame)


def by_spark(frame: DataFrame) -> DataFrame:
    state = net().state_dict()

    def load() -> Callable[[np.ndarray], np.ndarray]:
        model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        model.load_state_dict(state)
        model.eval()

        def predict(x: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                return model(torch.from_numpy(x))[:, 0].numpy()

        return predict

    predict = predict_batch_udf(
        load, return_type=types.FloatType(), batch_size=4096, input_tensor_shapes=[[WIDTH]]
    )
    return frame.withColumn("y__output", predict("x"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    x = sql.transform(
        sql.sequence(sql.lit(1), sql.lit(WIDTH)), lambda n: sql.sin(n * sql.col("id")).cast("float")
    )
    frame = spark.range(args.rows, numPartitions=2).select("id", x.alias("x")).cache()
    frame.count()
    sums = {}
    for _ in range(args.repeat):
        for way in (by_horovod, by_spark):
            begin = time.perf_counter()
            total = way(frame).select(sql.sum("y__output")).first()[0]
            rate = args.rows / (time.perf_counter() - begin)
            best = max(rate, sums.get(way.__name__, (0, 0))[0])
            sums[way.__name__] = best, total
    for name, (rate, total) in sums.items():
        print(f"{name:12} {rate:12,.0f} rows/s   sum {total:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
