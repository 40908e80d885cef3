"""What the elastic driver is asked for, and what it decides: values without behaviour."""

from dataclasses import dataclass

from .numbering import Member

GRACE_SECONDS = 5.0
"""What a worker that is asked to end has, if the user says nothing else."""


@dataclass(frozen=True)
class Limits:
    """What the user asks for.

    ``ranks``: with so many the first generation begins. ``fewest``, ``most``: ranks of any generation.
    ``spares``: processes that wait beside them. ``resets``: so many generations may follow the first one.
    ``patience``: seconds without a generation, or for a member that does not come to the next one.
    ``is_durable``: new workers find the state of the training on disk when all who held it are gone.
    ``grace``: seconds from asking a worker to end to the signal that kills it.
    """

    ranks: int
    fewest: int
    most: int | None = None
    spares: int = 0
    resets: int | None = None
    patience: float = 600.0
    is_durable: bool = False
    grace: float = GRACE_SECONDS


@dataclass(frozen=True)
class Start:
    """Start a worker."""

    worker: int
    host: str


@dataclass(frozen=True)
class Form:
    """Tell the members their places; nobody is in an earlier generation any more."""

    generation: int
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Notify:
    """Tell the members, who train, that the job can grow, or has to shrink."""

    added: bool
    removed: bool


@dataclass(frozen=True)
class Kill:
    """End a worker: gently, or at once where it ``is_silent``."""

    worker: int
    is_silent: bool
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """A worker does not end although it was killed: the job goes on as if it had."""

    worker: int


@dataclass(frozen=True)
class End:
    """The job is over. ``reason`` is empty when it has done its work."""

    status: int
    reason: str


Decision = Start | Form | Notify | Kill | GiveUp | End


@dataclass(frozen=True)
class Attempt:
    """A worker that failed: ``status`` as a shell reports it, ``lived`` how many seconds it was a member.
    ``is_own``: by an error of its own program. ``was_ended``: by the job.
    """

    worker: int
    host: str
    rank: int | None
    generation: int
    status: int
    lived: float
    is_own: bool = True
    was_ended: bool = False
