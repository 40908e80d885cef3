"""A program that has seen none of the classes of the stages that it loads, which ``cases.json`` names."""

import importlib
import json
import sys
from pathlib import Path

import estimator_cases
import numpy as np
from pyspark.sql import SparkSession

from horovod.spark.common.store import Store

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = [([n / 4, 1 - n / 4, n % 3 / 2], n / 2) for n in range(8)]
frame = spark.createDataFrame(rows, "x array<float>, y double").coalesce(1)
for case in json.loads(Path("cases.json").read_text(encoding="utf-8")):
    stage = getattr(importlib.import_module(case["module"]), case["kind"]).load(case["path"])
    if hasattr(stage, "fit"):  # at a rate of 0
        stage.setBackend(estimator_cases.InProcess()).setStore(Store.create("store"))
        stage = stage.fit(frame)
    found = [row["y__output"] for row in stage.transform(frame).collect()]
    np.testing.assert_allclose(found, case["predictions"], rtol=1e-5, err_msg=case["path"])
    assert len(found) == len(rows)
spark.stop()
sys.exit(0)
