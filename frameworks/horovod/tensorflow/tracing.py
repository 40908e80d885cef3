"""How the functions of this package are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_F = TypeVar("_F", bound=Callable[..., Any])


def as_written(function: _F) -> _F:
    """``function``, which AutoGraph does not rewrite.

    It rewrites what a ``tf.function`` calls, so that its ``if`` and ``for`` may depend on tensors. Ours
    never do, and rewriting takes seconds in the first step of a model of a hundred variables.
    """
    return tf.autograph.experimental.do_not_convert(function)
