"""A program that uses Spark Connect, whose server cannot be in the process of another application."""

import io
import sys
import threading

import cloudpickle
import pytest
import spark_programs as programs
from pyspark.sql import SparkSession

import horovod.spark
from horovod.spark.common import dataset
from horovod.spark.common.reader import Batches
from horovod.spark.common.store import Store

cloudpickle.register_pickle_by_value(programs)
session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
out = io.StringIO()
found = horovod.spark.run(programs.identity, ["hello"], num_proc=2, env={"OF_RANKS": "x"}, stdout=out)
numbers, environments, _ = zip(*found, strict=True)
assert numbers == ([0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1]), numbers
assert environments[1]["OF_RANKS"] == "x"
assert sorted(out.getvalue().splitlines()) == [f"[{rank}]<stdout>:hello from rank {rank}" for rank in (0, 1)]
with pytest.raises(ZeroDivisionError, match="planted") as caught:
    horovod.spark.run(programs.fails, [1], num_proc=2)
assert str(caught.value.__cause__).startswith("on rank 1 ("), caught.value.__cause__
with pytest.raises(RuntimeError, match="cannot be pickled"):
    horovod.spark.run(threading.Lock, num_proc=1)
with pytest.raises(RuntimeError, match="a training is not repeated"):
    horovod.spark.run(programs.identity, ["never"], num_proc=2, start_timeout=0)
with pytest.raises(ValueError, match="say num_proc"):
    horovod.spark.run(programs.identity, ["never"])
with pytest.raises(ValueError, match="not work over Spark Connect"):
    horovod.spark.run_elastic(programs.identity, ["never"])
store = Store.create("store")
df = session.range(100).selectExpr("id", "array(id, id) as pair", "id % 2 = 0 as is_val")
found = dataset.write(df, store, ["pair"], validation="is_val")
batches = Batches(found.train_path, list(found.columns.values()), 100, filesystem=store.filesystem)
assert sorted(next(batches.epoch())["pair"].tolist()) == [[n, n] for n in range(1, 100, 2)]
assert dataset.write(df, store, ["id"], validation=0.5).val_rows > 20
session.stop()
sys.exit(0)
