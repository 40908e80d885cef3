"""The file in which a study lies, unless the user names another storage of Optuna."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from horovod.search.keeper import import_optuna

if TYPE_CHECKING:
    import optuna

_SECONDS = 10.0  # for the processes of a job that was killed to end
_PAUSE_SECONDS = 0.1


def open_journal(path: Path, mine: contextlib.ExitStack, goes_on: bool) -> optuna.storages.BaseStorage:
    """The storage, which no other job uses until ``mine`` is closed.

    Args:
        path: of the file, which need not exist.
        mine: what this process holds.
        goes_on: this job has used it before, on a rank that may not quite be gone.

    Raises:
        ValueError: another job uses it.
        OSError: it cannot be opened.
    """
    import_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _hold(path, mine, 0.0 if goes_on else _SECONDS, goes_on)
    mend(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _hold(path: Path, mine: contextlib.ExitStack, seconds: float, goes_on: bool) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    mine.callback(os.close, file)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if goes_on:
                return
            if time.monotonic() >= deadline:
                raise ValueError(f"another job uses {path}: give this one another storage=") from None
        except OSError:  # this file system has no locks
            return
        time.sleep(_PAUSE_SECONDS)


def mend(path: Path) -> None:
    """Removes what a job that was killed has left in its way: its lock, and a line that it has not finished,
    to which Optuna would append the next one. Nobody else uses the file.
    """
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        if whole[2]:
            os.truncate(path, len(whole[0]) + len(whole[1]))
