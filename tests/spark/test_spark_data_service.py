"""Compute workers of tf.data on the slots of a Spark application."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from load import within

READS = Path(__file__).resolve().parents[1] / "tf" / "reads_from_service.py"
SPARK = "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell"


# It imports TensorFlow in four processes, and not in this one, whose libraries may not agree with it.
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
@pytest.mark.timeout(300)
def test_workers_on_executors(tmp_path: Path) -> None:
    file = tmp_path / "service.json"
    environ = {**os.environ, "PYSPARK_SUBMIT_ARGS": SPARK, "TF_CPP_MIN_LOG_LEVEL": "3"}
    arguments = ["-m", "horovod.spark.tensorflow.compute_worker", str(file), "--timeout", "200"]
    with subprocess.Popen([sys.executable, *arguments], env=environ) as service:
        try:
            reads = [sys.executable, str(READS), str(file), "each"]
            told = subprocess.check_output(reads, env=environ, text=True, timeout=within(120))
            status = service.wait(within(30))
        finally:
            service.terminate()
    assert told.split() == ["rank", "0", *(str(number * number) for number in range(100))]
    assert status == 0 and not file.exists()
