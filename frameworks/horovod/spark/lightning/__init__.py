"""``TorchEstimator``, which trains a LightningModule with the rows of a DataFrame, and its ``TorchModel``."""

from horovod.spark.lightning.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
