"""Waits for all children of this process in one place: ranks, tools of ours, and orphans of ranks."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator

from . import guard

_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 1.0


class Children:
    """The children of this process, which becomes the subreaper of whatever they leave behind.

    Children that are there already are none of the job's: a shell that has started them, for a process
    substitution or in the background, then became this process.
    """

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self._tools = guard.children(os.getpid())
        self._codes: dict[int, int] = {}
        self._on_end: dict[int, Callable[[], None]] = {}
        _become_subreaper()

    def expect(self, pid: int, is_tool: bool = False) -> None:
        """How this child ends will be asked for. A tool is no part of the job, nor is what it starts: ssh."""
        self._expected.add(pid)
        self._codes.pop(pid, None)  # of another one that had this number, which nobody has asked for
        if is_tool:
            self._tools.add(pid)

    def look_after(self, pid: int, on_end: Callable[[], None]) -> None:
        """A tool: ``on_end`` is called when it has ended."""
        self._tools.add(pid)
        self._on_end[pid] = on_end

    def reap(self) -> None:
        """Takes every child that has ended; to be called after each SIGCHLD."""
        for on_end in list(self._ended()):
            on_end()

    def _ended(self) -> Iterator[Callable[[], None]]:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._tools.discard(pid)
            if pid in self._on_end:
                yield self._on_end.pop(pid)
            if pid in self._expected:
                self._expected.discard(pid)
                self._codes[pid] = os.waitstatus_to_exitcode(status)

    def take_code(self, pid: int) -> int | None:
        """How a child has ended: its exit status, or minus the signal that killed it; None while it runs.
        Tells it once.
        """
        return self._codes.pop(pid, None)

    def strays(self) -> set[int]:
        """All that the job has running below this process, as far as there are descriptors to look. Each rank
        leads a session, so what is in this process's own was left by children of before.
        """
        try:
            return guard.descendants(os.getpid(), without=self._tools) - guard.in_session(os.getsid(0))
        except OSError:  # the groups of the ranks have been signalled: an end that is told counts for more
            return set()

    def kill_strays(self) -> None:
        """For the case that watching itself has failed; in an orderly end there is nobody left."""
        deadline = time.monotonic() + _KILL_SECONDS
        while (rest := self.strays()) and time.monotonic() < deadline:
            guard.signal_all(rest, signal.SIGKILL)
            time.sleep(0.01)


def _become_subreaper() -> None:
    """Makes daemons of the ranks children of this process, so that they can be found."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
