"""Small functions that other libraries import under these names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.tensorflow.graph import tf_variable


def _executing_eagerly() -> bool:
    """Whether operations run when they are called, outside of ``tf.function`` and of graphs."""
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` as a ``tf.function``."""
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Calls ``f`` once for every combination of arguments, eagerly and in graphs apart."""
    results: dict[Any, Any] = {}

    def cached(*args: Any, **kwargs: Any) -> Any:
        key = (args, frozenset(kwargs.items()), tf.executing_eagerly())
        if key not in results:
            results[key] = f(*args, **kwargs)
        return results[key]

    return cached


def vars_to_refs(vars: Any) -> Any:
    """What can be the key of a dict: a reference for a variable, a tuple of them for a list, nested too."""
    if isinstance(vars, (list, tuple)):
        return tuple(vars_to_refs(each) for each in vars)
    return tf_variable(vars).ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables that ``vars_to_refs`` made ``refs`` of; a list for a tuple."""
    if isinstance(refs, tuple):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
