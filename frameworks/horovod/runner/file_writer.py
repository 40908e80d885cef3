"""Keeps output in files, on a thread of its own: a disk that stands still, as one of a network may, must hold
back the ranks (their pipes fill up), but never the launcher's loop.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from horovod.bootstrap.text import escaped

from .sink import Sink

_FULL_BYTES = 1 << 20
_STUCK_SECONDS = 2.0
_TOLD_SECONDS = 1.0
_POLL_SECONDS = 0.005


class Keeper(Protocol):
    """A file that keeps output. Its methods may wait for the disk."""

    @property
    def name(self) -> str:
        """Its path, for people."""

    def write(self, data: memoryview, /) -> int:
        """Takes bytes; returns how many. Raises OSError where it takes none."""

    def close(self) -> None:
        """Nothing more is written to it from here. Some file systems tell only then, by an OSError, that they
        have kept nothing.
        """


class FileWriter:
    """A bounded queue in front of all files of a job.

    Args:
        opened: the files of the first ranks, by the name of the stream.
        on_room: called on the writing thread when the queue has emptied.
        complaints: where it is told that a file takes no more.
    """

    def __init__(
        self, opened: Sequence[Mapping[str, Keeper]], on_room: Callable[[], None], complaints: Sink
    ) -> None:
        self._on_room = on_room
        self._complaints = complaints
        self._changed = threading.Condition()
        self._queue: dict[QueuedFile, list[bytes]] = {}  # guarded by _changed, like all of the next three
        self._closing: list[QueuedFile] = []
        self._queued = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.written = 0  # bytes so far
        self.take(opened)

    def take(self, opened: Sequence[Mapping[str, Keeper]]) -> None:
        """The files of the ranks are these from now on."""
        self.of_ranks = [{name: self.queued(file) for name, file in files.items()} for files in opened]

    def queued(self, file: Keeper) -> "QueuedFile":
        """Takes what is for a file."""
        return QueuedFile(self, file)

    @property
    def is_full(self) -> bool:
        """Whether to stop reading from the ranks until ``on_room``."""
        return self._queued >= _FULL_BYTES

    def put(self, file: "QueuedFile", data: bytes) -> None:
        """Does not wait."""
        with self._changed:
            self._queue.setdefault(file, []).append(data)
            self._queued += len(data)
            self._wake()

    def put_end(self, file: "QueuedFile") -> None:
        """Closes the file behind all that was put."""
        with self._changed:
            self._closing.append(file)
            self._wake()

    def close(self) -> None:
        """Waits until all is written, as long as the disk takes anything."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        written, since = -1, 0.0
        while self._thread is not None and self._thread.is_alive():
            now = time.monotonic()
            if written != self.written:
                written, since = self.written, now
            if now > since + _STUCK_SECONDS:
                self._tell_stuck()
                return
            self._thread.join(_POLL_SECONDS)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="horovod-files", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing or self._is_closed)
                if not (self._queue or self._closing):
                    return
                queue, self._queue = self._queue, {}
                closing, self._closing = self._closing, []
            for file, parts in queue.items():
                self._write(file, b"".join(parts))
            for file in closing:
                self._end(file)
            with self._changed:
                self._queued -= sum(len(part) for parts in queue.values() for part in parts)
            self._on_room()

    def _write(self, file: "QueuedFile", data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not file.is_broken:  # a disk takes part of it before it is full
                count = file.file.write(view)
                self.written += count
                view = view[count:]
        except OSError as error:
            self._give_up(file, error)

    def _end(self, file: "QueuedFile") -> None:
        try:
            file.file.close()
        except OSError as error:
            self._give_up(file, error)

    def _give_up(self, file: "QueuedFile", error: OSError) -> None:
        if not file.is_broken:
            file.is_broken = True
            self._complain(f"{escaped(file.file.name)}: {escaped(error.strerror or str(error))}")

    def _tell_stuck(self) -> None:
        self._complain(f"the disk of --output-filename stands still: {self._queued} bytes are lost")
        self._complaints.flush(_TOLD_SECONDS)

    def _complain(self, why: str) -> None:
        self._complaints.say(f"warning: {why}; no more is kept there")


class QueuedFile:
    """One file, behind the queue. Nothing here waits, or fails."""

    def __init__(self, writer: FileWriter, file: Keeper) -> None:
        self.file = file
        self.is_broken = False  # nothing more is kept
        self._writer = writer

    @property
    def is_full(self) -> bool:
        """Whether to stop reading from the ranks for a while."""
        return self._writer.is_full

    @property
    def written(self) -> int:
        """How many bytes the disk has taken of all files."""
        return self._writer.written

    def put(self, data: bytes) -> None:
        """Takes the next bytes."""
        if not self.is_broken:
            self._writer.put(self, data)

    def close(self) -> None:
        """Nothing more comes."""
        self._writer.put_end(self)
