"""The launcher's side of the guard: starts it, tells it the sessions of the ranks, and dismisses it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable

from . import guard
from .children import Children

_NEEDED_TO_START = ("LD_LIBRARY_PATH",)
_MOST_STARTS = 10  # of guards, each ended by somebody
_END_SECONDS = 2.0


class Guardian:
    """A running guard process. It ends the job when this process ends without ``dismiss``: the sessions that
    it is told to watch, and all that has ``marker``, NAME=VALUE, in its environment.

    Another one takes the place of a guard that somebody has ended, and ``say`` is told.
    """

    def __init__(self, marker: str, children: Children, say: Callable[[str], None]) -> None:
        self._marker = marker
        self._children = children
        self._say = say
        self._sessions: set[int] = set()
        self._seconds: float | None = None
        self._starts = 0
        self._is_dismissed = False
        self._process = self._start()

    @property
    def mark(self) -> dict[str, str]:
        """For the environment of what may not live without this process, not even until it is watched."""
        name, _, value = self._marker.partition("=")
        return {name: value}

    def watch(self, session: int) -> None:
        """A rank has started as the leader of this session."""
        self._sessions.add(session)
        self._tell(f"+{session}")

    def forget(self, session: int) -> None:
        """The rank has ended, so that its number may soon be another's."""
        self._sessions.discard(session)
        self._tell(f"-{session}")

    def allow(self, seconds: float) -> None:
        """Ranks have so long to end by themselves when the launcher is gone."""
        self._seconds = seconds
        self._tell(f"={seconds:g}")

    def dismiss(self) -> None:
        """Nothing is left to guard. A guard that does not end, as a signal has stopped it, is killed."""
        self._is_dismissed = True
        self._tell("done")
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)

    def _start(self) -> "subprocess.Popen[bytes]":
        # Neither the secret nor a marker, by which the guard of another job would find this one.
        environment = {name: os.environ[name] for name in _NEEDED_TO_START if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process = process
        self._starts += 1
        self._children.look_after(process.pid, self._replace)
        self._tell(self._marker)
        if self._seconds is not None:
            self._tell(f"={self._seconds:g}")
        for session in self._sessions:
            self._tell(f"+{session}")
        return process

    def _replace(self) -> None:
        """The guard has ended."""
        if self._is_dismissed:
            return
        pid, self._process.returncode = self._process.pid, 0
        ended = f"process {pid}, which would end the ranks if horovodrun were killed, has been ended"
        try:
            if self._starts == _MOST_STARTS:
                raise OSError(f"{_MOST_STARTS} have been ended by now")
            self._start()
            text = f"{ended} by somebody; process {self._process.pid} has taken its place"
        except OSError as error:
            text = f"{ended}, and there is no other one: {error}. Ranks may outlive it then"
        with contextlib.suppress(OSError):  # of an agent, nobody may be there to read it
            self._say(text)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.closed:  # it is dismissed, and what it was to watch may end later
            return
        try:
            is_taken = self._process.stdin.write(line.encode() + b"\n") is not None
        except BrokenPipeError:  # it has been ended: the next one is told all
            return
        if not is_taken:  # a signal has stopped it for long, and nothing fits into the pipe any more
            os.kill(self._process.pid, signal.SIGKILL)
