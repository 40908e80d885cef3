"""Trains a small net on scikit-learn's handwritten digits with an estimator, and adds predictions.

    python examples/spark/estimator.py --ranks 2

The images are a column of a DataFrame. The trained model is a stage of pyspark.ml: it is saved, loaded and
evaluated like any other. Checks that it learns, and that the loaded one predicts the same.
"""

import argparse
import sys
import tempfile

import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from sklearn.datasets import load_digits
from torch.nn import functional as F

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel


def accuracy(predictions: DataFrame) -> float:
    """Of the class with the highest output."""

    @sql.udf("int")
    def highest(scores):
        return int(scores.toArray().argmax())

    is_right = (highest("digit__output") == sql.col("digit")).cast("double")
    return predictions.select(sql.mean(is_right)).first()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--store", help="where data and checkpoints are; a new folder by default")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("estimator").getOrCreate()
    images, digits = load_digits(return_X_y=True)
    rows = [(image.tolist(), int(digit)) for image, digit in zip(images / 16, digits, strict=True)]
    frame = spark.createDataFrame(rows, "image array<float>, digit int")
    train, test = frame.randomSplit([0.8, 0.2], seed=1)

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    folder = args.store or tempfile.mkdtemp()
    estimator = TorchEstimator(
        num_proc=args.ranks,
        store=Store.create(folder),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9),
        loss=F.cross_entropy,
        feature_cols=["image"],
        label_cols=["digit"],
        validation=0.1,
        batch_size=32,
        epochs=args.epochs,
    )
    fitted = estimator.fit(train)
    fitted.write().overwrite().save(f"{folder}/model")
    found, again = (accuracy(each.transform(test)) for each in (fitted, TorchModel.load(f"{folder}/model")))
    spark.stop()
    epochs = len(fitted.getHistory())
    print(
        f"{args.ranks} ranks, {epochs} epochs, accuracy {found:.1%}, the loaded model alike: {found == again}"
    )
    sys.exit(0 if found > 0.9 and found == again else 1)


if __name__ == "__main__":
    main()
