"""What the nodes of collectives are called, and what else every node says about itself."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from horovod.tensorflow.variables import as_node_name

_UNNAMED = "*"  # see frameworks/tensorflow_ops/attributes.h

_company: ContextVar[str] = ContextVar("company", default="")
_companies = itertools.count(1)


@contextlib.contextmanager
def one_company() -> Iterator[None]:
    """The collectives that are put into a graph meanwhile are best sent together: each waits a moment for the
    others, but for the last to start.
    """
    token = _company.set(f"company {next(_companies)}")  # of this process: the ranks need not agree
    try:
        yield
    finally:
        _company.reset(token)


def node_names(op: str, name: str | None, ignore_name_scope: bool) -> dict[str, Any]:
    """The arguments of an op that say under which name the ranks meet: in a graph its node's, eagerly
    ``name``, or none at all, so that it is counted. Whoever runs one eagerly waits for it, and in a graph
    others wait for it that are not known, unless it is one of a company.
    """
    if tf.executing_eagerly():
        return {"tensor_name": name or _UNNAMED, "awaited": True}
    company = _company.get()
    return {
        "name": as_node_name(name or "") or op,
        "ignore_name_scope": ignore_name_scope,
        "urgent": not company,
        "company": company,
    }
