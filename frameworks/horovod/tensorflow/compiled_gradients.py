"""The gradients of operations in functions that XLA compiles: those of ``autograd``, where shapes are known
and all ranks bring equally many rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from horovod.common.basics import rank
from horovod.common.collective.gradients import NONLINEAR, gradient_op, nonlinear_gradients, scatter_factor
from horovod.common.process_sets import ProcessSet, registered
from horovod.tensorflow.graph import equals

Tensors = Sequence[tf.Tensor]


class Done(NamedTuple):
    """An operation that is part of the program.

    Attributes:
        run: makes another one part of it: of its name in the library, tensors, a name and attributes.
        op: as the library calls it.
        tensors: what it took.
        name: by which the ranks match it; those of its gradient begin with it.
        attributes: its own.
    """

    run: Callable[[str, Tensors, str, Mapping[str, Any]], list[tf.Tensor]]
    op: str
    tensors: Tensors
    name: str
    attributes: Mapping[str, Any]

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that take part."""
        return registered(self.attributes["process_set_id"])

    @property
    def rows(self) -> list[int]:
        """The first dimension of each tensor."""
        return [tensor.shape[0] for tensor in self.tensors]

    @property
    def factors(self) -> tuple[float, float]:
        """By what tensors and results were multiplied."""
        return factor(self.attributes, "prescale"), factor(self.attributes, "postscale")

    def backward(
        self, op: str, tensors: Tensors, part: str = "gradient", **attributes: Any
    ) -> list[tf.Tensor]:
        """An operation of the backward pass, on the same ranks."""
        own = {"process_set_id": self.attributes["process_set_id"], **attributes}
        return self.run(f"horovod_{op}", tensors, f"{self.name}.{part}", own)


def gradients_of(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    """The gradients of the tensors that an operation took, given those of its results."""
    rule = _RULES[done.op.removeprefix("horovod_").removeprefix("grouped_")]
    return rule(done, [tf.convert_to_tensor(gradient) for gradient in gradients])


def factor(attributes: Mapping[str, Any], which: str) -> float:
    """The factor of an operation's attributes, ``which``: prescale or postscale; see ``mpi_ops``."""
    bits = attributes.get(f"{which}_bits", 0)
    return struct.unpack("d", struct.pack("q", bits))[0] if bits else attributes.get(f"{which}_factor", 1.0)


def _allreduce(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    op = done.attributes["reduce_op"]
    if op not in NONLINEAR:
        return done.backward("grouped_allreduce", gradients, **done.attributes)

    def reduce(tensors: Tensors, by: int, part: str) -> list[tf.Tensor]:
        return done.backward("grouped_allreduce", tensors, part, reduce_op=by)

    return nonlinear_gradients(op, done.tensors, gradients, done.factors, reduce, equals)


def _allgather(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    place = done.process_set.rank() or 0
    reduced = done.backward("grouped_allreduce", gradients, reduce_op=gradient_op())
    return [each[place * rows : (place + 1) * rows] for each, rows in zip(reduced, done.rows, strict=True)]


def _broadcast(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    """Made of the reduced one on all ranks: all take part in the gradient of this one."""
    (reduced,) = done.backward("grouped_allreduce", gradients, reduce_op=gradient_op())
    return [tf.where(rank() == done.attributes["root_rank"], reduced, tf.zeros_like(reduced))]


def _alltoall(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    return done.backward("alltoall", gradients)


def _reducescatter(done: Done, gradients: Tensors) -> list[tf.Tensor]:
    """Ranks that have a row less than others send one more, which is left out."""
    size = done.process_set.size() or 1
    scale = scatter_factor(done.attributes["reduce_op"], done.process_set, *done.factors)
    sent = [
        _with_rows(gradient * tf.constant(scale, gradient.dtype), -(-rows // size))
        for gradient, rows in zip(gradients, done.rows, strict=True)
    ]
    gathered = done.backward("grouped_allgather", sent)
    return [_dealt_out(each, rows, size) for each, rows in zip(gathered, done.rows, strict=True)]


def _with_rows(tensor: tf.Tensor, rows: int) -> tf.Tensor:
    return tf.pad(tensor, [(0, rows - tensor.shape[0]), *[(0, 0)] * (tensor.shape.rank - 1)])


def _dealt_out(gathered: tf.Tensor, rows: int, size: int) -> tf.Tensor:
    """Without the rows that were added."""
    room, full = -(-rows // size), rows % size or size
    parts = [gathered[place * room : (place + 1) * room - (place >= full)] for place in range(size)]
    return tf.concat(parts, 0)


_RULES: dict[str, Callable[[Done, Tensors], list[tf.Tensor]]] = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
}
