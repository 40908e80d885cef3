"""Jobs on the executors of a Spark application::

    import horovod.spark

    results = horovod.spark.run(train, args=(0.1,), num_proc=4)  # train calls hvd.init(), as in any other job

Each task of Spark runs an agent of horovodrun, which starts the ranks as processes of their own. The driver
runs the launcher. ``run_elastic`` goes on when executors are lost.
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("horovod.spark needs PySpark: pip install 'horovod[spark]'") from error

from horovod.spark.notebooks import HorovodRunner
from horovod.spark.runner import run, run_elastic

__all__ = ["HorovodRunner", "run", "run_elastic"]
