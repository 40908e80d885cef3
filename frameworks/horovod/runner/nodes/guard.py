"""Ends the ranks when the launcher is gone without having done so (SIGKILL, crash).

Runs as a program of its own, in a session of its own, started before the first rank. Its standard input is
a pipe from the launcher: the first line is the job's marker (an environment entry that every process of the
job inherits), then a line "+session" or "-session" for each rank that starts or has ended, "=seconds" for
the time that ranks have between SIGTERM and SIGKILL, and "done" before an orderly end. An end of file without
"done" means that the launcher is gone.
"""

import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

_TERM_SECONDS = 0.8
_KILL_SECONDS = 1.0
_POLL_SECONDS = 0.02
_QUIET_LOOKS = 3
_PYTHONS = ("python", "pypy")


class Process(NamedTuple):
    """A live process, as /proc shows it."""

    pid: int
    state: bytes
    parent: int
    group: int
    session: int


def processes() -> Iterator[Process]:
    """All processes that are not zombies."""
    found = (look_at(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return (process for process in found if process is not None)


def look_at(pid: int) -> Process | None:
    """None: it does not exist any more, or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, group, session = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else Process(pid, state, int(parent), int(group), int(session))


def descendants(root: int, without: Collection[int] = ()) -> set[int]:
    """All processes below ``root``, but those of ``without`` and what is below them."""
    children: dict[int, list[int]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    pending = [root]
    while pending:
        below = [pid for pid in children.get(pending.pop(), []) if pid not in found and pid not in without]
        found.update(below)
        pending += below
    return found


def children(parent: int) -> set[int]:
    """The processes that ``parent`` has started, or that were left to it."""
    return {process.pid for process in processes() if process.parent == parent}


def in_session(session: int) -> set[int]:
    """The processes of a session."""
    return {process.pid for process in processes() if process.session == session}


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    process = look_at(pid)
    return process is not None and process.state == b"T"


def members(sessions: set[int], marker: bytes) -> set[int]:
    """The processes in one of the sessions, or with the marker in their environment."""
    return {
        process.pid
        for process in processes()
        if process.pid != os.getpid() and (process.session in sessions or _is_marked(process.pid, marker))
    }


def in_groups(groups: Collection[int]) -> set[int]:
    """The processes of some process groups."""
    return {process.pid for process in processes() if process.group in groups}


def to_ask(pids: Collection[int], number: int) -> set[int]:
    """Of some processes, those that get a signal which asks for something: all but what is below a Python
    that handles it. That one goes on for a while and needs them; it would take their end for a failure.
    """
    parents = {pid: process.parent for pid in pids if (process := look_at(pid)) is not None}
    handlers = {pid for pid in parents if _handles(pid, number)}
    found = set()
    for pid in parents:
        above = parents[pid]
        while above in parents and above not in handlers:
            above = parents[above]
        if above not in parents:
            found.add(pid)
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Sends a signal to each that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _handles(pid: int, number: int) -> bool:
    """Whether a process is a Python with a handler for a signal."""
    try:
        if not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(_PYTHONS):
            return False
        with open(f"/proc/{pid}/status", "rb") as file:
            caught = next((line for line in file if line.startswith(b"SigCgt:")), b"SigCgt: 0")
    except OSError:
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _is_marked(pid: int, marker: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read().split(b"\0")
    except OSError:
        return False


def _end_job(sessions: set[int], marker: bytes, seconds: float) -> None:
    found = members(sessions, marker)
    signal_all(to_ask(found, signal.SIGTERM), signal.SIGTERM)
    signal_all(found, signal.SIGCONT)
    deadline = time.monotonic() + seconds
    while found and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found = members(sessions, marker)
    deadline = time.monotonic() + _KILL_SECONDS
    # Seeing nobody once is not enough: a process shows no environment while it starts a program.
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        quiet = 0 if found else quiet + 1
        signal_all(found, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        found = members(sessions, marker)


def main() -> None:
    """Waits for the launcher's end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    lines = sys.stdin.buffer
    marker = lines.readline().rstrip(b"\n")
    sessions: set[int] = set()
    seconds = _TERM_SECONDS
    for line in lines:
        word = line.strip()
        if word == b"done":
            return
        if word[:1] == b"+":
            sessions.add(int(word[1:]))
        elif word[:1] == b"=":
            seconds = float(word[1:])
        else:
            sessions.discard(int(word[1:]))
    if marker:
        _end_job(sessions, marker, seconds)


if __name__ == "__main__":
    main()
