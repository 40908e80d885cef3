"""Aggregation where TensorFlow executes eagerly, under the name by which existing scripts import it."""

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelperEager

__all__ = ["LocalGradientAggregationHelperEager"]
