"""``TorchEstimator``, which trains a model of PyTorch with the rows of a DataFrame, and ``TorchModel``."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("horovod.spark.torch needs PyTorch: pip install torch") from error

from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
