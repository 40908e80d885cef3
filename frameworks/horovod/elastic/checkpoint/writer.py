"""Writes checkpoints, on a thread of its own.

Each rank writes the files of its part to a folder with a temporary name, and last a report. Rank 0 waits for
the reports in the file system: a rank that dies brings none, which costs this one checkpoint and keeps nobody
waiting. When all are there it writes the manifest and gives the folder the name of a complete one.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from horovod.bootstrap.text import log
from horovod.elastic.checkpoint import layout
from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError
from horovod.elastic.checkpoint.folder import Folder
from horovod.elastic.checkpoint.formats import Format, Piece
from horovod.elastic.checkpoint.layout import Extent, File, Manifest, Part
from horovod.elastic.checkpoint.reader import of_newer_formats

_PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 120.0
"""For the other ranks' parts, when rank 0 has written its own."""


@dataclass(frozen=True)
class Task:
    """What one rank is to write.

    ``name``: the folder. ``writers``: the ranks that write. ``rank``: this one, the first of them for rank 0.
    ``document``: the values, of rank 0. ``pieces``: this rank's tensors. ``names``: of all tensors.
    ``history``: the lines to add, and how much is there before them.
    """

    name: str
    commit: int
    rank: int
    writers: tuple[int, ...]
    document: Any
    pieces: Mapping[str, Piece]
    names: Collection[str]
    history: bytes = b""
    before: Extent = field(default_factory=Extent)
    ranks: int = 1
    keep: int = 3
    damaged: frozenset[str] = frozenset()


class AbandonedError(CheckpointError):
    """The checkpoint is not completed, because some rank has not written its part."""


class Writer:
    """Of one rank. One checkpoint is written at a time. ``say`` gets warnings, at most one until a checkpoint
    is written.
    """

    def __init__(self, folder: Folder, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._thread: threading.Thread | None = None
        self._abandoned: str | None = None
        self._name = ""
        self._has_warned = False
        self.failed = ""
        self.written: Manifest | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it writes now."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, task: Task) -> None:
        """Writes in the background; it may not be busy."""
        self._abandoned, self._name = None, task.name
        thread = threading.Thread(target=self.run, args=(task,), name="hvd-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # a limit on processes
            self._fail(task, error)
        else:
            self._thread = thread

    def abandon(self, reason: str, name: str | None = None) -> None:
        """Does not wait for the parts of others any more, of this checkpoint or of any."""
        if name in (None, self._name):
            self._abandoned = reason

    def wait(self, seconds: float | None = None) -> bool:
        """Until it is not busy. Returns whether that came about in time."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_busy

    def run(self, task: Task) -> None:
        """Writes here and now. What goes wrong is told, and is no reason to end the training."""
        try:
            manifest = _write(self._folder, task, lambda: self._abandoned)
        except Exception as error:  # the formats of frameworks raise anything
            self._fail(task, error)
        else:
            self.written = manifest or self.written
            self._has_warned = self._has_warned and manifest is None

    def _fail(self, task: Task, error: Exception) -> None:
        self.failed = task.name
        if self._abandoned is None:
            self._warn(task, error)
        else:
            text = f"the checkpoint of commit {task.commit} was not written: {self._abandoned}"
            log("info", task.rank, text)

    def _warn(self, task: Task, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        reason = error if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
        self._say(
            f"the checkpoint of commit {task.commit} was not written to {self._folder.path}: {reason}. "
            "The training goes on, and the next one is tried"
        )


def _write(folder: Folder, task: Task, abandoned: Callable[[], str | None]) -> Manifest | None:
    try:
        with folder.new_folder(task.name) as place:
            part = _write_part(place, task)
            if task.rank != task.writers[0]:
                place.write_bytes(layout.part_name(task.rank), part.encode())
                return None
            parts = [part, *_await_parts(place, task.writers[1:], abandoned)]
            _check_names(parts, task.names)
            extent = _extend_history(folder, task)
            files = tuple(file for part in parts for file in part.files)
            manifest = Manifest(task.commit, files, extent, task.ranks, time.time())
            place.write_bytes(layout.MANIFEST, manifest.encode())
            for rank in task.writers[1:]:
                place.remove(layout.part_name(rank))
            place.flush()
        name = layout.complete_name(layout.number_of(task.name) or 0)
        folder.rename(task.name, name)
    except BaseException:
        if task.rank == task.writers[0]:
            # Also those that were left by others: they are of no use, and may be what has filled the disk.
            _remove(folder, layout.unfinished(folder.names()))
        raise
    names = set(folder.names()) - of_newer_formats(folder)
    _remove(folder, layout.superfluous(names, name, task.keep, task.damaged))
    return manifest


def _write_part(place: Folder, task: Task) -> Part:
    files: list[File] = []
    if task.rank == task.writers[0]:
        text = json.dumps(task.document, allow_nan=False)
        files.append(place.write_bytes(layout.STATE, text.encode()))
    for form in {piece.format.suffix: piece.format for piece in task.pieces.values()}.values():
        tensors = {name: piece.value for name, piece in task.pieces.items() if piece.format is form}
        name = layout.tensor_name(task.rank, form.suffix)
        files.append(place.write(name, _writing(form, tensors)))
    return Part(task.rank, tuple(files), tuple(task.pieces))


def _writing(form: Format, tensors: Mapping[str, Any]) -> Callable[[BinaryIO], None]:
    return lambda file: form.write(file, tensors)


def _await_parts(place: Folder, ranks: Sequence[int], abandoned: Callable[[], str | None]) -> list[Part]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    found: list[Part] = []
    for rank in ranks:
        while True:
            with contextlib.suppress(FileNotFoundError):
                found.append(layout.decode_part(place.read(layout.part_name(rank), layout.LONGEST_MANIFEST)))
                break
            reason = abandoned()
            if reason is None and time.monotonic() > deadline:
                raise CheckpointError(f"rank {rank} did not write its part within {PATIENCE_SECONDS:g} s")
            if reason is not None:
                raise AbandonedError(reason)
            time.sleep(_PAUSE_SECONDS)
    return found


def _check_names(parts: Sequence[Part], names: Collection[str]) -> None:
    written = sorted(name for part in parts for name in part.tensors)
    if written != sorted(names):
        raise CheckpointError("the ranks hold different tensors; there is no common checkpoint of them")


def _extend_history(folder: Folder, task: Task) -> Extent:
    size, lines = task.before.size, task.before.lines
    try:
        folder.extend(layout.HISTORY, size, task.history)
    except DamagedError:  # somebody has shortened or replaced it: what is left is kept
        size, lines = 0, 0
        with contextlib.suppress(OSError, DamagedError):
            left = folder.read(layout.HISTORY)
            size = left.rfind(b"\n") + 1
            lines = left.count(b"\n")
        folder.extend(layout.HISTORY, size, task.history)
    return Extent(size + len(task.history), lines + task.history.count(b"\n"))


def _remove(folder: Folder, names: Collection[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError, DamagedError):
            folder.remove_folder(name, layout.MANIFEST)
