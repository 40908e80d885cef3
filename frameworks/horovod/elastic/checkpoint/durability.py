"""What makes the state of one training durable: it follows the commits, and has checkpoints written of some.

Nothing here waits for another rank but in collectives, which end when a rank is lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from horovod.bootstrap.start import elastic_membership
from horovod.bootstrap.text import escaped, log
from horovod.common import basics
from horovod.common.set_agreement import exchange
from horovod.elastic import preemption
from horovod.elastic.checkpoint import layout, lock, plain, reader
from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError
from horovod.elastic.checkpoint.folder import Folder, opened
from horovod.elastic.checkpoint.formats import Format, Piece, Pieces
from horovod.elastic.checkpoint.history import Recorder, encode
from horovod.elastic.checkpoint.layout import Extent, Manifest
from horovod.elastic.checkpoint.notes import Note, Plan, dealt, plan
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.checkpoint.writer import Task, Writer

SHARD_BYTES = 64 << 20
"""With so many bytes of tensors, all ranks write a part."""

_NAME = "horovod.elastic.resume"
_LOCK_SECONDS = 5.0
_LEAVE_SECONDS = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT)  # there may be room soon


class Subject(Protocol):
    """The state; see ``elastic.state.ObjectState``."""

    @property
    def formats(self) -> Sequence[Format]:
        """Of the tensors that it has."""

    def saved_values(self) -> dict[str, tuple[Any, bool]]:
        """What was saved last, by attribute, and whether its tensors may be used as they are, without a copy:
        until the next call of ``lend``.
        """

    def lend(self) -> None:
        """Leaves the tensors of ``saved_values`` as they are until the next call."""

    def load_values(self, values: Mapping[str, Any]) -> None:
        """Takes what ``saved_values`` has told of each attribute."""


class Durability:
    """Of one state on one rank. ``recorder`` has what is recorded beside it."""

    def __init__(self, options: Options, subject: Subject) -> None:
        self.recorder = Recorder()
        self._options = options
        self._subject = subject
        self._folder: Folder | None = None
        self._lock: lock.FolderLock | None = None
        self._writer: Writer | None = None
        self._has_warned_of_folder = False
        self._newest: Manifest | None = None
        self._damaged: frozenset[str] = frozenset()
        # A token of rank 0's lock, and what this rank has found for it.
        self._sees: tuple[str, str] = ("", "")
        self._token = ""  # of rank 0's lock, as it told last
        self._commit = 0
        self._committed_as: int | None = None  # rank
        self._last_commit, self._last_time = 0, time.monotonic()
        self._has_checked = False
        self._total = 0

    def resume(self) -> int | None:
        """Loads the newest checkpoint into the state of rank 0. All ranks call it, when none has anything.
        Returns the number of its commit; None when there is none.

        Raises:
            CheckpointError: on all ranks: another job uses the folder, it cannot be written to, or the
                checkpoint does not fit.
        """
        if _rank():
            self._leave_lock()  # of an earlier attempt, in which it was rank 0
        report = self._resume() if _rank() == 0 else [None, None]
        if _size() > 1:
            report = exchange(report, _NAME)[0]
        problem, commit = report
        if problem is not None:
            raise CheckpointError(problem)
        self._commit = self._last_commit = commit or 0
        return None if commit is None else int(commit)

    def on_reset(self) -> None:
        """The ranks are others now: those that are gone write nothing any more."""
        if self._writer is not None:
            self._writer.abandon("the ranks have started again")

    def note(self, commit: int) -> Note:
        """This rank has saved a commit."""
        self._commit, self._committed_as = commit, _rank()
        self.recorder.commit(commit)
        writer = self._writer
        note = Note(commit, writer is not None and writer.is_busy, failed=writer.failed if writer else "")
        if _rank():
            self._leave_lock()
            return note._replace(sees=self._seen())
        name = "" if note.is_busy else self._proposal(commit)
        newest = self._durable
        return note._replace(
            name=name,
            token=self._lock.token if self._lock else "",
            is_large=self._total >= SHARD_BYTES,
            durable=newest.commit if newest else -1,
        )

    def act(self, notes: Mapping[int, Note]) -> None:
        """All ranks have told; a checkpoint of the commit is begun if they are to.

        Raises:
            UnstorableObjectError: on all ranks: an attribute has no form on disk.
        """
        if 0 not in notes:
            return
        self._token = notes[0].token
        self.recorder.forget_until(notes[0].durable)
        self._hear_failures(notes)
        decided = plan(notes, _size())
        if decided is None and self._has_checked:
            return
        pieces = Pieces(self._subject.formats)
        is_writer = decided is not None and _rank() in decided.writers
        document = self._document(pieces, is_writer)
        self._has_checked = True
        self._total = sum(pieces.sizes.values())
        if decided is not None:
            self._last_commit, self._last_time = self._commit, time.monotonic()
            if is_writer:
                self._subject.lend()
                self._current_writer.start(self._task(decided, document, pieces))

    def finish(self) -> None:
        """The training is done: its last commit is on disk when this returns, if that is possible."""
        if self._writer is not None:
            self._writer.wait()
        if self._committed_as != 0 or not self._can_write():  # not _rank(): it may have shut down
            return
        newest = self._durable
        name = self._new_name() if self._commit > (newest.commit if newest else 0) else ""
        if name:
            pieces = Pieces(self._subject.formats)
            document = self._document(pieces, is_writer=True)
            self._current_writer.run(self._task(Plan(name, (0,)), document, pieces))

    def close(self) -> None:
        """Lets the folder go."""
        if self._writer is not None:
            self._writer.abandon("the training has ended")
            if not self._writer.wait(_LEAVE_SECONDS):
                return  # the lock is its for as long as the process lives
        self._leave_lock()
        if self._folder is not None:
            self._folder.close()
        self._folder = self._writer = None

    def _resume(self) -> list[Any]:
        """[problem, commit], of which one at least is None."""
        try:
            problem = self._prepare()
            folder = self._folder
            found = None if folder is None else reader.newest(folder, self._subject.formats, _warn)
            if found is not None:
                self._load(found)
                self._newest, self._damaged = found.manifest, found.damaged
            else:
                self._tell_new_beginning()
        except CheckpointError as error:
            return [str(error), None]
        except OSError as error:
            return [self._refusal(error), None]
        if problem is not None:
            self._warn_of_folder(problem)
        if found is None:
            return [None, None]
        self.recorder = Recorder()
        with contextlib.suppress(OSError, DamagedError):
            if folder is not None and self._lock is not None:  # what was recorded later is recorded once more
                folder.extend(layout.HISTORY, found.manifest.history.size, b"")
        return [None, found.manifest.commit]

    def _prepare(self) -> OSError | None:
        """Returns the error of a full disk, which is tried again at each commit. Raises CheckpointError for a
        folder of somebody else, OSError for one that cannot be written to.
        """
        try:
            self._folder = self._folder or opened(self._options.path)
            self._lock = self._lock or lock.acquire(self._folder, _LOCK_SECONDS)
            name = layout.writing_name(layout.next_number(self._folder.names()), secrets.token_hex(4))
            self._folder.try_to_write(name)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return error
        return None

    def _refusal(self, error: OSError) -> str:
        return (
            f"No checkpoints can be written to {escaped(self._options.path)}: {escaped(str(error))}. Make it "
            "a folder that rank 0 can write to, or give the job another one"
        )

    def _tell_new_beginning(self) -> None:
        membership = elastic_membership()
        if membership is not None and membership.place is not None and membership.place.generation > 1:
            _warn(f"there is no checkpoint in {escaped(self._options.path)}: the training begins anew")

    def _load(self, found: reader.Found) -> None:
        values = {}
        for name in found.attributes:
            try:
                values[name] = found.value(name, self._options.allow_pickle)
            except CheckpointError as error:
                raise CheckpointError(f"{self._place_of(found)}, attribute {name!r}: {error}") from error
        try:
            self._subject.load_values(values)
        except Exception as error:  # frameworks raise anything
            raise CheckpointError(
                f"{self._place_of(found)} does not fit this program: {escaped(str(error))}. Give the job "
                "another folder, or the program that wrote it"
            ) from error
        log("info", 0, f"goes on from commit {found.manifest.commit}, {self._place_of(found)}")

    def _place_of(self, found: reader.Found) -> str:
        return f"The checkpoint {escaped(self._options.path)}/{found.name}"

    def _document(self, pieces: Pieces, is_writer: bool) -> dict[str, Any]:
        document = {}
        for name, (value, is_kept) in self._subject.saved_values().items():
            pieces.is_lent = is_kept or not is_writer
            document[name] = plain.encode(value, name, pieces.set_aside, self._options.allow_pickle)
        return document

    def _task(self, decided: Plan, document: Any, pieces: Pieces) -> Task:
        rank = _rank()
        share = dealt(pieces.sizes, len(decided.writers))[decided.writers.index(rank)]
        mine: dict[str, Piece] = {name: pieces.found[name] for name in share}
        newest = self._durable
        durable = newest.commit if newest else -1
        lines = [] if rank else self.recorder.lines_between(durable, self._commit)
        return Task(
            name=decided.name,
            commit=self._commit,
            rank=rank,
            writers=decided.writers,
            document=document,
            pieces=mine,
            names=pieces.found.keys(),
            history=encode(lines),
            before=newest.history if newest else Extent(),
            ranks=_size(),
            keep=self._options.keep,
            damaged=self._damaged,
        )

    @property
    def _durable(self) -> Manifest | None:
        """Of the newest checkpoint on disk, as far as this rank knows."""
        return (self._writer and self._writer.written) or self._newest

    @property
    def _current_writer(self) -> Writer:
        if self._writer is None:
            self._folder = self._folder or opened(self._options.path)
            self._writer = Writer(self._folder, lambda text: _warn(text + self._newest_for_people()))
        return self._writer

    def _proposal(self, commit: int) -> str:
        """The folder for a checkpoint of this commit; "" for none."""
        commits, seconds = commit - self._last_commit, time.monotonic() - self._last_time
        if not self._options.is_due(commits, seconds) or not self._can_write():
            return ""
        return self._new_name()

    def _new_name(self) -> str:
        """Of a folder to write to; "" when there can be none."""
        assert self._folder is not None
        try:
            name = layout.writing_name(layout.next_number(self._folder.names()), secrets.token_hex(4))
        except (CheckpointError, OSError) as error:
            self._warn_of_folder(error)
            return ""
        self._has_warned_of_folder = False
        return name

    def _can_write(self) -> bool:
        """Whether this rank, which is rank 0, has the lock by now."""
        if self._lock is not None:
            return True
        try:
            self._folder = self._folder or opened(self._options.path)
            self._lock = lock.acquire(self._folder, 0.0)
            self._newest = reader.newest_manifest(self._folder) or self._newest
        except lock.LockedError:  # by the former rank 0: it is tried again later
            pass
        except (CheckpointError, OSError) as error:
            self._warn_of_folder(error)
        return self._lock is not None

    def _leave_lock(self) -> None:
        if self._lock is not None and not (self._writer is not None and self._writer.is_busy):
            self._lock.release()
            self._lock = None
            if self._writer is not None:
                self._newest, self._writer.written = self._durable, None

    def _warn_of_folder(self, error: Exception) -> None:
        if not self._has_warned_of_folder:
            self._has_warned_of_folder = True
            _warn(
                f"no checkpoints are written to {escaped(self._options.path)}: {escaped(str(error))}. The "
                f"training goes on without them, and each commit tries again{self._newest_for_people()}"
            )

    def _newest_for_people(self) -> str:
        """What would be left if all ranks were lost now, as far as this rank knows."""
        if _rank():
            return ""
        newest = self._durable
        return f"; the newest one is of commit {newest.commit}" if newest else "; there is none yet"

    def _seen(self) -> str:
        """Looks once for each token of rank 0."""
        if self._token and self._sees[0] != self._token and self._lock is None:
            found = ""
            with contextlib.suppress(CheckpointError, OSError):
                if self._folder is None:
                    self._folder = opened(self._options.path, create=False)
                found = lock.token_in(self._folder)
            self._sees = (self._token, found)
        return self._sees[1]

    def _hear_failures(self, notes: Mapping[int, Note]) -> None:
        failed = [rank for rank, note in notes.items() if rank and note.failed]
        if _rank() == 0 and self._writer is not None:
            for rank in failed:
                self._writer.abandon(f"rank {rank} could not write its part", notes[rank].failed)


def _rank() -> int:
    return basics.rank() if basics.is_initialized() else 0


def _size() -> int:
    return basics.size() if basics.is_initialized() else 1


def _warn(text: str) -> None:
    log("warning", _rank(), text)


@contextlib.contextmanager
def kept(state: Any, options: Options) -> Iterator[None]:
    """The state is durable meanwhile, if there is a folder for it.

    Raises:
        CheckpointError: the state has no attributes that could be written.
    """
    options = options.completed(os.environ)
    if not options.path:
        yield
        return
    if not hasattr(state, "durability"):
        raise CheckpointError(
            f"A {type(state).__name__} cannot be written to a checkpoint: derive it from ObjectState"
        )
    durability = state.durability = Durability(options, state)
    try:
        yield
        durability.finish()
    except preemption.Leaving:
        durability.finish()
        raise
    finally:
        durability.close()
        state.durability = None
