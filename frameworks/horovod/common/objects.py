"""Python objects between ranks: pickled by cloudpickle, sent as byte tensors, sizes of 64 bits.

An object travels as one status byte and a payload, so that a rank which cannot pickle its object says so to
the others instead of leaving them waiting.
"""

from __future__ import annotations

import pickle
from typing import Any, Generic

from horovod.bootstrap.text import escaped
from horovod.common import basics
from horovod.common.collectives import Collectives, check_root
from horovod.common.placement import Tensor
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set

_PICKLED = b"\x00"
_FAILED = b"\x01"


class UnpicklableObjectError(ValueError):
    """Some rank could not pickle the object that it was to send."""


def _encode(obj: Any) -> tuple[bytes, Exception | None]:
    import cloudpickle  # late: most programs never send an object

    try:
        return _PICKLED + cloudpickle.dumps(obj), None
    except Exception as error:
        text = f"rank {basics.rank()} cannot pickle a {type(obj).__name__}: {error}"
        return _FAILED + text.encode(errors="replace"), error


def _decode(data: bytes) -> Any:
    if data[:1] == _FAILED:
        raise UnpicklableObjectError(escaped(data[1:].decode(errors="replace")))
    return pickle.loads(memoryview(data)[1:])


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else name + "." + part


class ObjectCollectives(Generic[Tensor]):
    """The object operations of one adapter, over its byte tensors; the bound methods are what users call."""

    def __init__(self, ops: Collectives[Tensor]) -> None:
        self._ops = ops

    def broadcast_object(
        self,
        obj: Any,
        root_rank: int = 0,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Returns the object of rank ``root_rank``: itself there, a copy elsewhere. ``obj`` is ignored
        elsewhere.

        Raises UnpicklableObjectError (a ValueError) on every rank when the root cannot pickle it.
        """
        check_process_set(process_set)
        check_root(root_rank, process_set)
        is_root = basics.rank() == root_rank
        data, failure = _encode(obj) if is_root else (b"", None)
        size = self._ops.broadcast_number(len(data), root_rank, _part(name, "size"), process_set)
        tensor = self._ops.glue.from_bytes(data if is_root else bytes(size))
        self._ops.broadcast_(tensor, root_rank, _part(name, "data"), process_set)
        if is_root and failure is None:
            return obj
        return _decode(self._ops.glue.to_bytes(tensor))

    def allgather_object(
        self, obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[Any]:
        """Returns the objects of all ranks of the process set, in rank order.

        Raises UnpicklableObjectError (a ValueError) on every rank when one of them cannot pickle its object.
        """
        check_process_set(process_set)
        data, _ = _encode(obj)
        sizes = self._ops.allgather_numbers(len(data), _part(name, "size"), process_set)
        tensor = self._ops.glue.from_bytes(data)
        handle = self._ops.allgather_async(tensor, _part(name, "data"), process_set)
        gathered = self._ops.glue.to_bytes(self._ops.synchronize(handle))
        objects, start = [], 0
        for size in sizes:
            objects.append(_decode(gathered[start : start + size]))
            start += size
        return objects
