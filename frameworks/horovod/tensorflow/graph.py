"""What this package puts into graphs: how its functions are traced, which variables are the same and what
they are called, and what the nodes of collectives say about themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import tensorflow as tf

from horovod.tensorflow.native import put_name

_F = TypeVar("_F", bound=Callable[..., Any])

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]")
_UNNAMED = "*"  # see frameworks/tensorflow_ops/node.h

_step: ContextVar[str] = ContextVar("step", default="")
_steps = itertools.count(1)


def as_written(function: _F) -> _F:
    """``function``, which AutoGraph does not rewrite.

    It rewrites what a ``tf.function`` calls, so that its ``if`` and ``for`` may depend on tensors. Ours
    never do, and rewriting takes seconds in the first step of a model of a hundred variables.
    """
    return tf.autograph.experimental.do_not_convert(function)


def tf_variable(variable: Any) -> Any:
    """The ``tf.Variable`` inside of a Keras variable; anything else as it is."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def identity(variable: Any) -> int:
    """A number that a Keras variable and the ``tf.Variable`` inside have in common, and no others while they
    live.
    """
    return id(tf_variable(variable))


def equals(tensor: tf.Tensor, other: Any) -> tf.Tensor:
    """1 where the elements equal those of ``other``, and 0 elsewhere, of the tensor's type."""
    return tf.cast(tf.equal(tensor, tf.cast(other, tensor.dtype)), tensor.dtype)


def as_node_name(text: str) -> str:
    """``text`` as the name of a node, which cannot have every character."""
    return _NOT_IN_NAMES.sub("_", text).lstrip("_.-")


@contextlib.contextmanager
def one_step() -> Iterator[None]:
    """The collectives that are put into a graph meanwhile reduce the gradients of one training step: each
    waits a moment for the others to travel with, but for the last to start.
    """
    token = _step.set(f"step {next(_steps)}")  # of this process: the ranks need not agree
    try:
        yield
    finally:
        _step.reset(token)


def is_compiled_by_xla() -> bool:
    """Whether the function being traced was made with ``jit_compile=True``; no public call tells."""
    graph: Any = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def node_names(op: str, name: str | None, ignore_name_scope: bool) -> dict[str, Any]:
    """The arguments of an op that say by which name the ranks match it: in a graph its node's, eagerly
    ``name``, or none at all, so that it is counted. Whoever runs one eagerly waits for it, and in a graph
    others wait for it that are not known, unless it is one of the gradients of a step.
    """
    if tf.executing_eagerly():
        return {**(put_name(name) if name else {"tensor_name": _UNNAMED}), "awaited": True}
    if is_compiled_by_xla():
        own = as_node_name(name or "") or op
        graph = tf.compat.v1.get_default_graph()
        return {"compiled": own if ignore_name_scope else graph.unique_name(own)}
    step = _step.get()
    return {
        "name": as_node_name(name or "") or op,
        "ignore_name_scope": ignore_name_scope,
        "urgent": not step,
        "step": step,
    }
