"""Variables of TensorFlow and of Keras: which are the same, and what they are called."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]")
_TRAILING_NUMBER = re.compile(r"_*\d*(:\d+)?$")


def tf_variable(variable: Any) -> Any:
    """The ``tf.Variable`` inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def identity(variable: Any) -> int:
    """A number that a Keras variable and the ``tf.Variable`` inside have in common, and no others while they
    live.
    """
    return id(tf_variable(variable))


def as_node_name(text: str) -> str:
    """``text`` as the name of a node, which cannot have every character."""
    return _NOT_IN_NAMES.sub("_", text).lstrip("_.-")


def own_name(variable: Any) -> str:
    """What the variable itself is called, as in ``kernel``: without the layers that it is in, and without
    the number that tells it from others of the name, which a rank that has built more models counts
    differently.
    """
    path = str(getattr(variable, "name", ""))
    return as_node_name(_TRAILING_NUMBER.sub("", path.rpartition("/")[2]))
