"""The way to the agent of a host that has dialled in; see ``way.Way``. When its connection breaks, the agent
dials again, and both go on where they were.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE

from .channel import Channel, Tag
from .sealed import LastingStream, SealedConnection
from .session import SIGN_OF_LIFE
from .way import Way

if TYPE_CHECKING:
    from .joining import Application

_NEVER = float("inf")


class Joined:
    """``application`` is what the agent has said of its host, ``addresses`` are those of this host and of the
    other one; ``salt`` makes the secret of the job from the one that both know.
    """

    relay = None
    refusal = ""
    delay = "its connection broke before it could say who it is"
    depth = 1
    is_dialled = True
    is_able = False

    def __init__(
        self, application: "Application", addresses: tuple[str, str], patience: float, salt: str
    ) -> None:
        self.application = application
        self.host = application.host
        self.addresses: tuple[str, str] | None = addresses
        self.patience = patience
        self.salt = salt
        self.heard = time.monotonic()
        self.is_greeted = self.is_used = self.has_work = False
        self.on_frame: Callable[[Tag, bytes], None] = lambda tag, payload: None
        self.on_cut: Callable[[str], None] = lambda reason: None
        self._had = -1  # how many bytes had come when a connection that may bring more began
        self._reason = ""  # why it is at its end
        self._ended: float | None = None
        self._is_done = False
        self.stream = LastingStream(self._feed, self._on_break, self._end)
        self._channel = Channel(self.stream.write, self._take_frame, self._end, is_first=False)

    @property
    def is_gone(self) -> bool:
        """Whether nobody is waited for any more."""
        return self._ended is not None

    @property
    def is_here(self) -> bool:
        """Whether the host may be counted on: one that the job uses may be away for a while."""
        return not self.is_gone and (self.is_used or self.stream.is_connected)

    def resume(self, connection: SealedConnection, arrived: int) -> None:
        """Goes on over a new connection; the agent has got so many bytes. Raises SessionError."""
        self.stream.resume(connection, arrived)
        if self.stream.received != self._had:  # else the last connection brought nothing: this one may not
            self._had, self.heard = self.stream.received, time.monotonic()

    def show_life(self, now: float) -> None:
        """Lets the agent know that the launcher is there, and the network between them; the agent answers."""
        self.stream.tend(now)
        self.stream.send(SIGN_OF_LIFE)

    def send(self, tag: Tag, said: object = None) -> None:
        """Says something to the agent, now or when it is back."""
        self._is_done |= tag == Tag.DONE
        self._channel.send(tag, said)

    def wants_to_dial(self, now: float) -> bool:
        """The agent has dialled."""
        return False

    def is_logging_in(self, now: float) -> bool:
        """It has proved who it is."""
        return False

    def dial(self, relay: Way | None) -> None:
        """There is a connection, or there will be one."""
        self.is_used = True

    def inheritance(self, secret: bytes, folder: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """Nothing that a stranger could use who listens: the agent makes the secret itself, and its host has
        a folder and an environment of its own. For how long a connection may be away, both have to agree on.
        """
        self.has_work = True
        shared = {name: value for name, value in environment.items() if name == HOST_TIMEOUT_VARIABLE}
        return {"salt": self.salt, "folder": "", "environment": shared}

    def next_time(self, now: float) -> float:
        """It has no news of itself."""
        return _NEVER

    def why_lost(self, now: float) -> str:
        """Why it is at its end."""
        return self._reason

    def is_in_doubt(self, now: float) -> bool:
        """Whether there is no connection just now."""
        return not self.stream.is_connected

    def give_up(self) -> None:
        """The agent is told nothing more, and finds that out."""
        self._end("")

    def cut_those_behind(self) -> None:
        """It leads to nobody else."""

    def close(self) -> None:
        """Gives everything back."""
        self._end("")

    def _feed(self, data: bytes) -> None:
        self._channel.feed(data)

    def _take_frame(self, tag: Tag, payload: bytes) -> None:
        self.heard = time.monotonic()
        self.on_frame(tag, payload)

    def _on_break(self, reason: str) -> None:
        if self._is_done:  # it has nothing to come back for
            self._end("")

    def _end(self, reason: str) -> None:
        if self._ended is None:
            self._ended, self._reason = time.monotonic(), reason or "its agent has left"
        self._channel.close()
        self.stream.close()
