"""The launcher's side of the guard: starts it, tells it the sessions of the ranks, and dismisses it."""

import os
import subprocess
import sys

from . import guard

_NEEDED_TO_START = ("LD_LIBRARY_PATH",)


class Guardian:
    """A running guard process. It ends the job when this process ends without ``dismiss``."""

    def __init__(self, marker: str) -> None:
        # Neither the secret nor a marker, by which the guard of another job would find this one.
        environment = {name: os.environ[name] for name in _NEEDED_TO_START if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._tell(marker)

    def watch(self, session: int) -> None:
        """A rank has started as the leader of this session."""
        self._tell(f"+{session}")

    def forget(self, session: int) -> None:
        """The rank has ended, so that its number may soon be another's."""
        self._tell(f"-{session}")

    def allow(self, seconds: float) -> None:
        """Ranks have so long to end by themselves when the launcher is gone."""
        self._tell(f"={seconds:g}")

    def dismiss(self) -> None:
        """Nothing is left to guard."""
        self._tell("done")
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:  # taken together with the other children
            pass
        self._process.returncode = 0

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:  # killed by somebody: the ranks still notice by their link to the launcher
            pass
