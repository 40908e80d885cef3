"""The function on its way from the launcher's store to the ranks, and the results on their way back.

A value of any size travels in parts that fit into a frame. It lies in a file without a name, so that neither
caller nor launcher holds it in memory twice.
"""

import enum
import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from horovod.bootstrap.network.frames import MAX_PAYLOAD
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

_PART_BYTES = MAX_PAYLOAD - 4096  # a key and the lengths of fields travel with it

_PREFIX = b"call/"
_SIZE_KEY = "call/size"
_BEGIN_KEY, _PART_KEY = "call/begin", "call/part"
NOTE_KEY = "call/note"
_MOST_SIZE_DIGITS = 18
_MOST_BYTES = 1 << 62  # of all results, so that their places are numbers for the system


class Kind(enum.IntEnum):
    """What a rank sends."""

    RESULT = 0  # what the function returned
    ERROR = 1  # what it raised


@dataclass
class Region:
    """A part of the file of results: what one rank has sent."""

    kind: Kind
    offset: int
    size: int
    received: int = 0


def nameless_file(name: str) -> BinaryIO:
    """An empty file that only this process and those to which it hands the descriptor can reach."""
    try:
        return open(os.memfd_create(name, os.MFD_CLOEXEC), "w+b")
    except (OSError, AttributeError):  # an old kernel, a sandbox
        return tempfile.TemporaryFile()


def content(descriptor: int) -> memoryview:
    """The bytes of a file, without a copy. The file must not shrink."""
    size = os.fstat(descriptor).st_size
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b"")


def publish(store: StoreServer, value: memoryview) -> None:
    """Offers ``value`` to the ranks; before the store is started."""
    store.publish(_SIZE_KEY.encode(), b"%d" % len(value))
    for number, start in enumerate(range(0, len(value), _PART_BYTES)):
        store.publish(_key(number).encode(), value[start : start + _PART_BYTES])


def fetch(store: StoreClient) -> memoryview:
    """On a rank: what the launcher published."""
    value = bytearray(int(store.get(_SIZE_KEY)))
    for number, start in enumerate(range(0, len(value), _PART_BYTES)):
        part = store.get(_key(number))
        value[start : start + len(part)] = part
    return memoryview(value)


def send(store: StoreClient, kind: Kind, value: bytes) -> None:
    """On a rank: hands a value to the launcher. Raises BootstrapError when it does not take it."""
    store.set(_BEGIN_KEY, b"%d %d" % (kind, len(value)))
    view = memoryview(value)
    for start in range(0, len(value), _PART_BYTES):
        store.set(_PART_KEY, bytes(view[start : start + _PART_BYTES]))


class Results:
    """In the launcher: takes what the ranks send, each into a region of one file; notes go to ``on_note``."""

    def __init__(self, descriptor: int, on_note: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._on_note = on_note
        self._end = 0
        self._regions: dict[int, Region] = {}  # by rank, in the order in which they began

    def attach(self, store: StoreServer) -> None:
        """Before the store is started."""
        store.divert(_PREFIX, self._take)

    def complete(self) -> dict[int, Region]:
        """By rank, in the order in which they began, what has come in full."""
        return {rank: region for rank, region in self._regions.items() if region.received == region.size}

    def _take(self, rank: int, key: bytes, value: bytes) -> str:
        if key == NOTE_KEY.encode():
            self._on_note(value)
            return ""
        if key == _BEGIN_KEY.encode():
            return self._begin(rank, value)
        region = self._regions.get(rank)
        if key != _PART_KEY.encode() or region is None or region.received + len(value) > region.size:
            return "this is no part of a result"
        try:
            _write(self._descriptor, value, region.offset + region.received)
        except OSError as error:
            total = _mebibytes(self._end)
            return f"no room for the results of all ranks, {total} so far: {error.strerror}"
        region.received += len(value)
        return ""

    def _begin(self, rank: int, announced: bytes) -> str:
        kind, _, size = announced.partition(b" ")
        if kind not in (b"0", b"1") or not size.isdigit() or len(size) > _MOST_SIZE_DIGITS:
            return "this is no beginning of a result"
        if self._end + int(size) > _MOST_BYTES:
            return f"no room for the results of all ranks, {_mebibytes(self._end + int(size))}"
        self._regions.pop(rank, None)
        self._regions[rank] = Region(Kind(int(kind)), self._end, int(size))
        self._end += int(size)
        return ""


def _key(number: int) -> str:
    return f"call/function/part{number}"


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        offset, view = offset + count, view[count:]


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
