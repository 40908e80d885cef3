"""What ``horovod.keras`` needs where Keras computes by TensorFlow."""

from horovod.tensorflow import metric
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.keras.backend import backend
from horovod.tensorflow.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    reducescatter,
)
from horovod.tensorflow.keras.wrapping import distribute
from horovod.tensorflow.mpi_ops import barrier, join

__all__ = [
    "allgather",
    "allreduce",
    "backend",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "Compression",
    "distribute",
    "join",
    "metric",
    "reducescatter",
]
