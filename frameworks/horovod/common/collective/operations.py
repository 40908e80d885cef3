"""The one list of collective operations: their names, the forms in which they are public, and what they take
beside their tensors.

The modules that users import get their ``__all__`` from it (``exports.public_names``), and the table of
gradients (``gradients``) names its rules by it. A new operation is a row here, a method of ``Collectives``, a
rule, and one line in the ``mpi_ops`` of each adapter that offers it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from horovod import _core
from horovod._core import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.common.process_sets import global_process_set
from horovod.common.reduce_ops import Average

__all__ = ["ALLGATHER", "ALLREDUCE", "ALLTOALL", "BROADCAST", "REDUCESCATTER"]
__all__ += ["FUNCTIONS", "OPERATIONS", "REQUIRED", "Operation", "acquire_api"]

REQUIRED = inspect.Parameter.empty
"""The default of an argument that must be given."""

_GATHER = {"name": None, "process_set": global_process_set}
_FACTORS = {"prescale_factor": 1.0, "postscale_factor": 1.0}
_REDUCE = {"average": None, "name": None, "op": None, **_FACTORS, "process_set": global_process_set}
_SCATTER = {"name": None, "op": Average, "process_set": global_process_set, **_FACTORS}

# The endings of the forms: into a new tensor, or in place (_); waited for, or started (async).
_NEW = ("", "_async")
_NEW_AND_IN_PLACE = ("", "_async", "_", "_async_")


class Operation(NamedTuple):
    """One row of the list.

    Attributes:
        name: of the form that waits and returns a new tensor.
        endings: of the names of all forms.
        arguments: what the forms take beside the tensor, in order, with defaults. A reduction that waits and
            returns a new tensor takes ``compression`` too.
        grouped: it takes several tensors, which travel as one operation, all or none.
    """

    name: str
    endings: tuple[str, ...]
    arguments: Mapping[str, Any]
    grouped: bool = False

    @property
    def functions(self) -> list[str]:
        """The names of the public functions."""
        return [self.name + ending for ending in self.endings]


OPERATIONS = (
    Operation("allreduce", _NEW_AND_IN_PLACE, _REDUCE),
    Operation("grouped_allreduce", _NEW_AND_IN_PLACE, _REDUCE, grouped=True),
    Operation("allgather", _NEW, _GATHER),
    Operation("grouped_allgather", _NEW, _GATHER, grouped=True),
    Operation("broadcast", _NEW_AND_IN_PLACE, {"root_rank": REQUIRED, **_GATHER}),
    Operation("alltoall", _NEW, {"splits": None, **_GATHER}),
    Operation("reducescatter", _NEW, _SCATTER),
    Operation("grouped_reducescatter", _NEW, _SCATTER, grouped=True),
)
"""The operations on tensors."""

_MESSAGES = ("send", "send_async", "recv", "recv_async")
_WITHOUT_TENSORS = ("barrier", "join", "poll", "synchronize", "wait", "wait_async")

FUNCTIONS = (
    *(name for operation in OPERATIONS for name in operation.functions),
    *_MESSAGES,
    *_WITHOUT_TENSORS,
)
"""All public functions of operations, in the order of the documentation. An adapter has those that make sense
in its framework.
"""


def acquire_api() -> int:
    """The address of the core's table of C functions (core/api/c_api.h), for adapters with native code.

    Returns:
        The address. The caller owns a reference to the table.
    """
    return _core.acquire_api()
