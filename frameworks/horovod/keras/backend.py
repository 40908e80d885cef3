"""The framework by which Keras computes, found when it is first needed."""

from __future__ import annotations

from typing import Any, cast

import keras

from horovod._keras.adapter import KerasAdapter
from horovod._keras.backend import Backend


class LazyBackend:
    """Everything of a ``Backend``, from the framework's. ValueError where Keras computes by another framework
    than TensorFlow, torch or JAX.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(_chosen(), name)


def _chosen() -> Backend:
    name = keras.backend.backend()
    if name == "tensorflow":
        from horovod.tensorflow.keras import backend as on_tensorflow

        return on_tensorflow.backend
    if name == "torch":
        from horovod.keras import torch_backend as on_torch

        return on_torch.backend
    if name == "jax":
        from horovod.keras import jax_backend as on_jax

        return on_jax.backend
    raise ValueError(
        f"Keras computes by {name} here, and horovod.keras works with its backends tensorflow, torch and "
        "jax; set KERAS_BACKEND to one of them before keras is imported."
    )


backend = cast(Backend, LazyBackend())
adapter = KerasAdapter(keras, backend, "horovod.keras")
