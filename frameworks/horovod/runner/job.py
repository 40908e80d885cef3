"""A job as its launcher has it: what runs, where, and under which limits. It knows no command line."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .ending import GRACE_SECONDS, Ending
from .hosts import Host
from .nodes.node import Work

if TYPE_CHECKING:
    from horovod.elastic.driver.decisions import Limits

    from .call.call import Call
    from .elastic.chaos import Chaos


@dataclass(frozen=True)
class Reach:
    """The way to other hosts.

    ``shell`` are the words of a command that runs a program on a host, in place of ssh. ``fan_out``: on how
    many hosts one logs in; 0: the launcher does, on all. ``rendezvous``: where hosts dial the launcher, and
    ``joining`` how many it waits for. A host counts as lost when its connection is away for
    ``lost_seconds``. ``start_seconds``: what hosts have to come, if the user has said it.
    """

    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    shell: tuple[str, ...] = ()
    fan_out: int = 0
    rendezvous: str | None = None
    joining: int = 0
    lost_seconds: float = 30.0
    start_seconds: float | None = None


@dataclass(frozen=True)
class Output:
    """What becomes of what the ranks write. ``ranks``: whose is shown (None: all). ``folder``: where it is
    kept, too. ``events``: a file for what happens; ``is_json``: stdout gets that in place of all else.
    ``metrics``: where the job tells how far it is, see ``progress.places``. ``has_prefix``: lines begin with
    their rank.
    """

    ranks: Sequence[int] | None = None
    has_time: bool = False
    folder: str | None = None
    events: str | None = None
    is_json: bool = False
    is_verbose: bool = False
    metrics: Sequence[tuple[str, int] | str] = ()
    has_prefix: bool = True


@dataclass(frozen=True)
class Elastic:
    """What an elastic job has besides. ``script`` prints the hosts; ``slots`` are those of a host for which
    nobody says how many it has. ``preemption``: a signal that asks a worker to end; ``notice``: the file
    that says that a host is about to be taken away. ``cooldown``: the shortest and the longest time, in
    seconds, for which a host is left alone where ranks fail again and again, if the user has said them.
    """

    limits: "Limits"
    script: str | None = None
    slots: int | None = None
    cooldown: tuple[float, float] | None = None
    chaos: "Chaos | None" = None
    preemption: int | None = None
    notice: str | None = None


@dataclass(frozen=True)
class OtherLauncher:
    """mpirun or jsrun, which starts the ranks. ``knows_hosts``: it runs in an allocation, and is told none;
    ``allocated`` are those that the batch system names.
    """

    name: str
    knows_hosts: bool = False
    allocated: Sequence[Host] | None = None
    arguments: str | None = None
    binding: str | None = None


@dataclass(frozen=True)
class Job:
    """``work`` is what each host runs, but for what differs among hosts. ``variables`` are those of all
    ranks, beside what they inherit, and ``of_hosts``, by host, those of the ranks there, which count more.
    ``timeout``: seconds after which the job ends anyhow. ``restarts``: how often all ranks of a job that is
    not elastic may be started again. ``call``: what horovod.run needs.
    """

    work: Work
    hosts: Sequence[Host]
    variables: Mapping[str, str]
    reach: Reach = Reach()
    output: Output = Output()
    grace: float = GRACE_SECONDS
    timeout: float | None = None
    restarts: int = 0
    elastic: Elastic | None = None
    launcher: OtherLauncher | None = None
    warnings: Sequence[str] = ()
    call: "Call | None" = None
    of_hosts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many ranks it has, at its start."""
        return self.work.size

    def ending(self) -> Ending:
        """The limits of a job that begins now; what asks a worker to end asks for that of the job, too."""
        deadline = float("inf") if self.timeout is None else time.monotonic() + self.timeout
        return Ending(self.grace, deadline, None if self.elastic is None else self.elastic.preemption)
