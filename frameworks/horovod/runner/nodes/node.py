"""The seam between a job and the hosts that its ranks run on.

A node is one host with the ranks that run there. It knows how to start, watch and end them, and decides
nothing: whether a job goes on is for the events' receiver, which hears of all nodes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..ending import Exit
from ..hosts import Placement
from . import binding

STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Work:
    """What the ranks of one node run.

    ``environment`` is that of all of them, to which each rank's own variables come; ``size`` is that of the
    job; ``stdin_rank`` is the rank, if any, that reads the launcher's standard input; ``orphan_seconds`` is
    how long ranks have to end by themselves without the launcher, if not as long as usual; ``notice`` is the
    file, if any, that says that the host is about to be taken away; ``bind_to`` is how they share its cores,
    and ``gpus_per_rank`` how many of its GPUs each sees, if not all, see ``binding``; ``wdir`` is the folder
    that they start in, if not that of the process which starts them.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    placements: Sequence[Placement]
    size: int
    stdin_rank: int | None = None
    orphan_seconds: float | None = None
    notice: str | None = None
    bind_to: str = binding.NONE
    gpus_per_rank: int = 0
    wdir: str | None = None


class Events(Protocol):
    """What a node tells."""

    def started(self, rank: int, pid: int) -> None:
        """A rank runs, as the leader of a session of its own."""

    def has_room(self, rank: int, stream: str) -> bool:
        """Whether ``output`` is welcome; a node asks before it reads, so that a slow reader of the output
        holds back the ranks.
        """

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """The next bytes of a stream; no bytes: its end."""

    def ended(self, exits: Sequence[Exit]) -> None:
        """How ranks ended that were seen to end at one moment."""


class Node(Protocol):
    """The verbs of a host. None of them waits: what takes time goes on in ``tend``."""

    @property
    def host(self) -> str:
        """Its name, as the user has given it."""

    @property
    def stopped(self) -> Collection[int]:
        """Ranks that a signal had stopped when ``find_stopped`` was called last."""

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be done there any more."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left of what its ranks have started, or nothing can be done about it."""

    def signal(self, number: int) -> None:
        """Sends a signal to the process groups of the ranks that live."""

    def start_worker(self, number: int, variables: Mapping[str, str], slots: int) -> None:
        """Starts one process more, of the work that the node has; ``variables`` are its own, and it shares
        the cores with so many as there are ``slots``. Raises OSError where the system refuses it.
        """

    def signal_one(self, rank: int, number: int) -> None:
        """Sends a signal to the process group of one rank, if it lives."""

    def find_stopped(self) -> None:
        """Looks which ranks are stopped; see ``stopped``."""

    def show_stacks(self, ranks: Collection[int] | None = None) -> None:
        """Has the ranks that live write where they are to their stderr; those of ``ranks``, if given, go on
        as they were.
        """

    def tend(self, now: float) -> float:
        """Carries on what is under way; called after every event. Returns when to call it at the latest."""

    def finish(self) -> None:
        """Ends what the ranks have left behind, daemons included; called when they have all ended."""

    def abandon(self) -> None:
        """Takes the output that is there and ends its streams, whoever still holds them open."""

    def close(self) -> None:
        """Gives everything back. Ends by force what still runs."""
