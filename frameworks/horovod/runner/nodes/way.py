"""The seam between a host's node and whatever carries the frames to the agent there."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .channel import Tag

PING_SECONDS = 2.0
PATIENCE = 8.0


class Way(Protocol):
    """``on_frame`` gets what the agent says, and ``on_cut`` why nothing will come any more, when that is the
    end of what the way goes by. ``heard`` is when the agent has said something last, ``is_greeted`` is set
    when it has told who it is, and after ``patience`` seconds of silence its host counts as lost.
    """

    host: str
    on_frame: Callable[[Tag, bytes], None]
    on_cut: Callable[[str], None]
    heard: float
    is_greeted: bool
    patience: float

    @property
    def relay(self) -> "Way | None":
        """The way by which this one goes, if it does: it is lost before this one can be."""

    @property
    def addresses(self) -> tuple[str, str] | None:
        """Of this host and of the other one, as the way leads from one to the other; None: the agent says."""

    @property
    def refusal(self) -> str:
        """Why a relay could not reach it."""

    @property
    def delay(self) -> str:
        """Why nothing is heard, as far as it is known."""

    @property
    def depth(self) -> int:
        """How many logins lead to the host."""

    @property
    def is_dialled(self) -> bool:
        """Whether there is a connection, whatever it has led to."""

    @property
    def is_able(self) -> bool:
        """Whether the host may be asked to dial others."""

    def wants_to_dial(self, now: float) -> bool:
        """Whether ``dial`` is to be called: for the first time, or again."""

    def is_logging_in(self, now: float) -> bool:
        """Whether it has not been let in yet."""

    def dial(self, relay: Any) -> None:
        """Begins to bring the agent up. Raises OSError where that cannot be here."""

    @property
    def is_gone(self) -> bool:
        """Whether there is no agent, or none any more."""

    def send(self, tag: Tag, said: object = None) -> None:
        """Says something to the agent; without effect where there is none."""

    def inheritance(self, secret: bytes, folder: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """What is told of the job's secret, of the launcher's folder and environment."""

    def next_time(self, now: float) -> float:
        """When ``why_lost`` has news at the latest."""

    def why_lost(self, now: float) -> str:
        """Why it leads nowhere any more; empty: it does, or it is not known yet."""

    def is_in_doubt(self, now: float) -> bool:
        """Whether it may be lost."""

    def give_up(self) -> None:
        """Ends it: it leads to an agent that does not answer."""

    def cut_those_behind(self) -> None:
        """What was reached by way of the host is lost with it."""

    def close(self) -> None:
        """Gives everything back. An agent that has not left ends by itself."""
