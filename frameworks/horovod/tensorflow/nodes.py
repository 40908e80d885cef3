"""What the nodes of collectives are called."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_UNNAMED = "*"  # see frameworks/tensorflow_ops/attributes.h


def node_names(op: str, name: str | None, ignore_name_scope: bool) -> dict[str, Any]:
    """The arguments of an op that say under which name the ranks meet: in a graph its node's, eagerly
    ``name``, or none at all, so that it is counted. Whoever runs one eagerly waits for it.
    """
    if tf.executing_eagerly():
        return {"tensor_name": name or _UNNAMED, "urgent": True}
    return {"name": name or op, "ignore_name_scope": ignore_name_scope}
