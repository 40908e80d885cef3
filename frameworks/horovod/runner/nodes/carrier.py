"""The seam between an agent and whatever carries its bytes to the launcher and back."""

from collections.abc import Callable
from typing import Any, Protocol

from .. import timeouts
from .loop import Loop
from .pipes import ReadPipe, WritePipe

PATIENCE_SECONDS = 60.0


class Carrier(Protocol):
    """``on_bytes`` gets what comes; no bytes: the launcher is gone, with the reason in ``reason`` if there is
    one for people.
    """

    on_bytes: Callable[[bytes], object]
    reason: str
    patience: float  # seconds for which the launcher may be silent
    is_paused: bool  # the launcher has said that it stops for a while

    @property
    def unsent(self) -> int:
        """How many bytes are on their way to the launcher, or wait for it."""

    def write(self, data: bytes) -> None:
        """For the launcher; does not wait."""

    def job_secret(self, said: dict[str, Any]) -> bytes:
        """That of the job, from what the work says of it."""

    def tend(self, now: float) -> float:
        """Goes on with what is under way. Returns when to call it at the latest."""

    def close(self) -> None:
        """Gives everything back. Idempotent."""


class Pipes:
    """Standard input and output, which lead to who has started this process: ssh, or another remote shell."""

    def __init__(self, loop: Loop) -> None:
        self.on_bytes: Callable[[bytes], object] = lambda data: None
        self.reason = ""
        self.patience = PATIENCE_SECONDS
        self.is_paused = False
        self._output = WritePipe(loop.selector, 1)
        self._input = ReadPipe(loop.selector, 0, lambda data: self.on_bytes(data))

    @property
    def unsent(self) -> int:
        """How many bytes the pipe has not taken yet."""
        return self._output.unsent

    def write(self, data: bytes) -> None:
        """For the launcher."""
        self._output.write(data)

    def job_secret(self, said: dict[str, Any]) -> bytes:
        """As it has come: who reads these pipes has logged in as the user. The launcher may be silent as long
        as that user says.
        """
        self.patience = timeouts.lost_seconds(said["environment"], self.patience)
        return bytes.fromhex(str(said["secret"]))

    def tend(self, now: float) -> float:
        """Nothing is under way."""
        return float("inf")

    def close(self) -> None:
        """The process ends."""
