"""Python objects between ranks: pickled, sent as byte tensors, sizes of 64 bits.

An object travels as a MAC, one status byte and a payload. A rank that cannot pickle its object says so to
the others instead of leaving them waiting. The MAC is verified before anything is unpickled, because a link
for data is protected by no more than a checksum. Each object of a gathering has its own, since no rank has
all of them before they have travelled.
"""

from __future__ import annotations

import hmac
from typing import Any, Generic

from horovod.bootstrap.text import escaped
from horovod.common import basics
from horovod.common.collective.collectives import Collectives, check_root
from horovod.common.collective.exchange import part
from horovod.common.collective.tensor_glue import Tensor
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set

_PICKLED = b"\x00"
_FAILED = b"\x01"
_MAC_BYTES = 32


class UnpicklableObjectError(ValueError):
    """Some rank could not pickle the object that it was to send."""


def _encode(obj: Any) -> tuple[bytes, Exception | None]:
    from horovod.common.collective.pickling import dumps  # late: most programs never send an object

    try:
        return _PICKLED + dumps(obj), None
    except Exception as error:
        text = f"rank {basics.rank()} cannot pickle a {type(obj).__name__}: {error}"
        return _FAILED + text.encode(errors="replace"), error


def _decode(data: memoryview, failure: Exception | None) -> Any:
    if data[:1] == _FAILED:
        raise UnpicklableObjectError(escaped(bytes(data[1:]).decode(errors="replace"))) from failure
    import pickle

    return pickle.loads(data[1:])


def _mac(data: bytes | memoryview, sender: int, name: str | None, process_set: ProcessSet) -> bytes:
    """Only a rank of this job can make it, and it holds for this sender and this operation alone."""
    from horovod.bootstrap.start import key_for

    terms = f"{sender} {process_set.process_set_id} {'' if name is None else name}"
    mac = hmac.new(key_for("objects"), terms.encode(errors="replace") + b"\0", "sha256")
    mac.update(data)
    return mac.digest()


def _opened(
    sealed: memoryview,
    sender: int,
    name: str | None,
    process_set: ProcessSet,
    failure: Exception | None = None,
) -> Any:
    """The object of rank ``sender``. Nothing is interpreted that this rank did not send. ``failure``: why the
    sender could not pickle it, where that is known.
    """
    mac, data = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(data, sender, name, process_set)):
        which = "" if name is None else f" '{escaped(name)}'"
        raise HorovodInternalError(
            f"the object{which} of rank {sender} is not what that rank has sent: its MAC is wrong, so it was "
            "not unpickled. Something between the ranks changes data; look at the network and its proxies."
        )
    return _decode(data, failure)


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
        """Gives every rank the object of rank ``root_rank``.

        Args:
            obj: what can be pickled; ignored elsewhere than on the root.
            root_rank: a rank of the job that is one of ``process_set``.
            name: identifies the operation on all ranks.
            process_set: the ranks that take part.

        Returns:
            The object: itself on the root, a copy elsewhere.

        Raises:
            UnpicklableObjectError: a ValueError, on every rank: the root cannot pickle it.
            HorovodInternalError: a rank is gone, or what came is not what the root has sent.
        """
        check_process_set(process_set)
        check_root(root_rank, process_set)
        is_root = basics.rank() == root_rank
        data, failure = _encode(obj) if is_root else (b"", None)
        if is_root:
            data = _mac(data, root_rank, name, process_set) + data
        size = self._ops.broadcast_number(len(data), root_rank, part(name, "size"), process_set)
        tensor = self._ops.glue.from_bytes(data if is_root else bytes(size))
        self._ops.broadcast_(tensor, root_rank, part(name, "data"), process_set)
        if is_root and failure is None:
            return obj
        received = memoryview(self._ops.glue.to_bytes(tensor))
        return _opened(received, root_rank, name, process_set, failure)

    def allgather_object(
        self, obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[Any]:
        """Gives every rank the objects of all ranks.

        Args:
            obj: what can be pickled.
            name: identifies the operation on all ranks.
            process_set: the ranks that take part.

        Returns:
            The objects, in rank order.

        Raises:
            UnpicklableObjectError: a ValueError, on every rank: one of them cannot pickle its object.
            HorovodInternalError: a rank is gone, or what came is not what its rank has sent.
        """
        check_process_set(process_set)
        me = basics.rank()
        data, failure = _encode(obj)
        data = _mac(data, me, name, process_set) + data
        # With the rank, because one that has joined contributes nothing.
        sizes = self._ops.allgather_number_lists([me, len(data)], part(name, "size"), process_set)
        tensor = self._ops.glue.from_bytes(data)
        handle = self._ops.allgather_async(tensor, part(name, "data"), process_set)
        gathered = memoryview(self._ops.glue.to_bytes(self._ops.synchronize(handle)))
        senders = [sender for sender, _ in sizes]
        if senders != sorted(set(senders)):
            raise HorovodInternalError(
                f"the objects of a gathering come from the ranks {senders}, not in order"
            )
        objects, start = [], 0
        for sender, size in sizes:
            why = failure if sender == me else None
            objects.append(_opened(gathered[start : start + size], sender, name, process_set, why))
            start += size
        return objects
