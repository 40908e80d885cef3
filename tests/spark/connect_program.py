"""A program that uses Spark Connect, whose server cannot be in the process of another application."""

import importlib.util
import io
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import pytest
import spark_programs as programs
from load import within
from pyspark.sql import SparkSession

import horovod.spark
from horovod.spark.common import dataset
from horovod.spark.common.reader import Batches
from horovod.spark.common.store import Store

cloudpickle.register_pickle_by_value(programs)
Path("theirs").mkdir()
Path("theirs", "only_there.py").write_text("class Odd(Exception):\n    pass\n")
os.environ["PYTHONPATH"] += os.pathsep + os.path.abspath("theirs")
os.environ["SPARK_TESTING"] = "1"  # the server's port is a free one, and not the usual one
session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
del os.environ["SPARK_TESTING"]
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
with pytest.raises(GeneratorExit, match="of an odd kind"):
    horovod.spark.run(programs.raises, [GeneratorExit("of an odd kind")], num_proc=1)
with pytest.raises(RuntimeError, match=r"there is no network interface nosuch"):
    horovod.spark.run(programs.identity, ["never"], num_proc=2, nics="nosuch")
begin = time.monotonic()
with pytest.raises(RuntimeError, match="/no/python: no such file"):
    horovod.spark.run(programs.identity, ["never"], num_proc=2, executable="/no/python")
assert time.monotonic() - begin < within(30)  # agents would look for their launcher for ten minutes
out = io.StringIO()
with pytest.raises(RuntimeError, match=r"only_there.Odd: a message") as caught:
    horovod.spark.run(programs.of_a_class_that_only_ranks_have, [True], num_proc=1, stdout=out)
assert "on rank 0 (" in str(caught.value.__cause__) and "it goes wrong" in out.getvalue()
with pytest.raises(RuntimeError, match=r"cannot unpickle the results \(ModuleNotFoundError: .*only_there"):
    horovod.spark.run(programs.of_a_class_that_only_ranks_have, [False], num_proc=1)
narrow, closed = io.TextIOWrapper(io.BytesIO(), "ascii"), io.StringIO()
closed.close()
assert len(horovod.spark.run(programs.identity, ["h\u00e9"], num_proc=1, stdout=narrow, stderr=closed)) == 1
narrow.seek(0)
assert "[0]<stdout>:h\\xe9 from rank 0" in narrow.read()
with ThreadPoolExecutor(1) as pool:
    assert len(pool.submit(horovod.spark.run, programs.identity, ["hi"], num_proc=1).result()) == 1
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

# An estimator: the DataFrame is written, trained with and given predictions; the model is saved and loaded.
if importlib.util.find_spec("torch"):
    import torch

    from horovod.spark.common.store import Store
    from horovod.spark.torch import TorchEstimator, TorchModel

    rows = [([float(n % 7), float(n % 5)], 0.1 * (n % 7) - 0.2 * (n % 5)) for n in range(70)]
    frame = session.createDataFrame(rows, "x array<double>, y double")
    model = torch.nn.Linear(2, 1)
    values = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "num_proc": 2}
    values |= {"loss": torch.nn.functional.mse_loss, "feature_cols": ["x"], "label_cols": ["y"], "epochs": 30}
    with tempfile.TemporaryDirectory() as folder:
        estimator = TorchEstimator(store=Store.create(folder), batch_size=5, verbose=0, **values)
        estimator.fit(frame).write().overwrite().save(f"{folder}/model")
        found = TorchModel.load(f"{folder}/model").transform(frame).collect()
    assert max(abs(row["y"] - row["y__output"]) for row in found) < 0.3, found
    with pytest.raises(ValueError, match="say num_proc"):
        estimator.setNumProc(None).fit(frame)
session.stop()
sys.exit(0)
