"""The program of compute workers on the executors of Spark: each slot of the application runs one. See
``horovod.tensorflow.data.compute_service``.
"""

from pyspark.sql import SparkSession

import horovod.spark
from horovod.spark.tasks import slots
from horovod.tensorflow.data.compute_service import compute_worker_fn
from horovod.tensorflow.data.compute_worker import parser_for, serving


def main() -> None:
    text = "Serves tf.data datasets to trainings, from all slots of a Spark application."
    parser = parser_for("horovod.spark.tensorflow.compute_worker", text)
    args = parser.parse_args()
    context = SparkSession.builder.getOrCreate().sparkContext
    workers = slots(context) or context.defaultParallelism
    if args.dispatchers <= 0 or workers % args.dispatchers:
        parser.error(f"{workers} workers cannot be shared among {args.dispatchers} dispatchers equally")
    with serving(args, workers) as config:
        horovod.spark.run(compute_worker_fn, [config], num_proc=workers)


if __name__ == "__main__":
    main()
