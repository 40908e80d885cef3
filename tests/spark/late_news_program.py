"""A program in an application whose driver hears late of what its stages do: their tasks count."""

import time

from load import within
from pyspark.sql import SparkSession

import horovod.spark

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.liveUpdate.period", "1h")
builder.getOrCreate().sparkContext.setLogLevel("ERROR")
seconds = within(8)
assert horovod.spark.run(time.sleep, [seconds + 4], num_proc=2, start_timeout=seconds) == [None, None]
