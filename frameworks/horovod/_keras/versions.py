"""Which Keras an object comes from: Keras 3, Keras 2 or its continuation tf_keras."""

from __future__ import annotations

import sys
from typing import Any

_PACKAGES = ("keras", "tf_keras")


def keras_of(optimizer: Any) -> Any:
    """The package of the optimizer. Raises ValueError when it is no optimizer of Keras."""
    for base in type(optimizer).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _PACKAGES and hasattr(optimizer, "apply_gradients"):
            return sys.modules[package]
    raise ValueError(
        "DistributedOptimizer needs an optimizer of Keras such as keras.optimizers.Adam(), "
        f"found {optimizer!r}."
    )


def is_keras_3(keras: Any) -> bool:
    """Whether it is Keras 3 or later."""
    return int(keras.__version__.partition(".")[0]) >= 3
