"""A program whose application is stopped, from another thread, while a job runs in it or waits for tasks."""

import contextlib
import sys
import threading
import time
from typing import Any

import cloudpickle
import pytest
import spark_programs as programs
from load import within
from pyspark.sql import SparkSession

import horovod.spark

cloudpickle.register_pickle_by_value(programs)


def takes_a_slot(context: Any) -> None:
    with contextlib.suppress(Exception):  # the application is stopped
        context.parallelize([0], 1).foreach(lambda _: time.sleep(60))


for ranks in (1, 2):  # of which 1 has room
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    context = builder.config("spark.driver.host", "127.0.0.1").getOrCreate().sparkContext
    context.setLogLevel("ERROR")
    threading.Thread(target=takes_a_slot, args=(context,), daemon=True).start()
    time.sleep(2)
    threading.Timer(5, context.stop).start()
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="the application of Spark has been stopped") as caught:
        horovod.spark.run(programs.exchanges, num_proc=ranks, start_timeout=within(100))
    print(ranks, time.monotonic() - begin, caught.value)
    assert time.monotonic() - begin < within(30)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if "Inheritable" in name or "hvd" in name], names
sys.exit(0)
