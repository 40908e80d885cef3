"""``KerasEstimator``, which trains a model of Keras with the rows of a DataFrame, and its ``KerasModel``."""

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
