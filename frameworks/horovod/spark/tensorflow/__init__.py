"""Input pipelines of TensorFlow on the executors of Spark: see ``compute_worker``."""
