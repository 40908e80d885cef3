"""An application of Spark with two executors of one core on this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before Spark starts, with compilers that start quickly and then are slow.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_PYTHON"] = sys.executable
import cloudpickle
import pyspark
import spark_programs
from pyspark.sql import SparkSession

os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)

# Ranks and tasks do not find the modules of tests.
for pickler in (cloudpickle, pyspark.cloudpickle):
    pickler.register_pickle_by_value(spark_programs)

OPTIONS = {
    "spark.driver.host": "127.0.0.1",
    "spark.task.maxFailures": "40",  # of tests that kill many executors
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_WORKER_DIR", str(folder))
        builder = SparkSession.builder.master("local-cluster[2,1,1024]")
        builder = builder.config("spark.local.dir", str(folder))
        for name, value in OPTIONS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
