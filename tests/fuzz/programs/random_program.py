"""Random programs, as data: what the ranks of one job do together, act after act.

A program follows from its seed alone and is the same on every rank. Any of its acts may be left out: the
rest is still a program, because what is done over a process set that is not there is left out too. Nothing
here runs anything: ``rank_player`` does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import disagreements
import operations

EVERYBODY = "all"
LAPS = 60  # between the numbers of one operation in two steps: the same root, factors and splits
WIRINGS = (
    ((0, 0), "shm"), ((0, 0, 0), "shm"), ((0, 0, 0, 0), "shm"),
    ((0, 0), "tcp"), ((0, 0, 0), "tcp"), ((0, 0, 0, 0), "tcp"),
    ((0, 1), "auto"), ((0, 0, 1), "auto"), ((0, 1, 1), "auto"),
    ((0, 0, 1, 1), "auto"), ((0, 1, 1, 1), "auto"), ((0, 0, 1, 2, 2, 2), "auto"),
)  # fmt: skip
"""For each rank the number of its host, and how the ranks of one host talk."""
SETTINGS = (
    ("HOROVOD_LEARNED_SCHEDULE", "0"),
    ("HOROVOD_CACHE_CAPACITY", "8"),
    ("HOROVOD_FUSION_THRESHOLD", "1000"),
    ("HOROVOD_SHM_CHUNK_BYTES", "16384"),
    ("HOROVOD_DIRECT_BYTES", "64"),
    ("HOROVOD_AUTOTUNE", "1"),
    ("HOROVOD_ENCRYPT", "1"),
)
"""One of a program in three has one of these."""
SHAPES = ((1,), (1,), (2,), (7,), (33,), (7, 2), (0, 3), (5, 0), (130, 3), (2000,), (9001,))
SMALL = ("allreduce", "float32")  # as metrics are: what the votes of a learned schedule carry
SIZES = (0, 1, 100, 5000, 20_000, 300_000)  # elements of messages
TAGS = 3


@dataclass(frozen=True)
class Operation:
    """One operation of a step, in the words of ``operations.Case``. ``members`` names the process set."""

    kind: str
    dtype: str
    op: str
    shape: tuple[int, ...]
    members: str
    number: int
    name: str | None
    wait: bool
    in_place: bool


Batch: TypeAlias = tuple[Operation, ...]


@dataclass(frozen=True)
class AddSet:
    """A process set is added."""

    members: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RemoveSet:
    """It is removed."""

    members: str


@dataclass(frozen=True)
class Steps:
    """Step ``i`` runs the batch ``order[i]``: a loop of training, with phases.

    ``threads``: how many of a rank share the batch. ``growing``: shapes change from step to step.
    ``overlap``: a step ends after the next one has begun. ``pause``: seconds at most that a rank rests before
    some operations.
    """

    batches: tuple[Batch, ...]
    order: tuple[int, ...]
    threads: int = 1
    growing: bool = False
    overlap: bool = False
    pause: float = 0.0


@dataclass(frozen=True)
class Join:
    """Rank ``r`` runs the batch ``counts[r]`` times, then joins."""

    batch: Batch
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """From one rank to one, itself perhaps."""

    source: int
    dest: int
    tag: int
    size: int


@dataclass(frozen=True)
class Messages:
    """Each rank sends and receives its part of them, in an order of its own."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Disagree:
    """The ranks do not call an operation alike; all get the error, and the next operation works."""

    kind: str


@dataclass(frozen=True)
class Duplicate:
    """One rank uses a name that is in flight; it alone gets an error."""

    rank: int


@dataclass(frozen=True)
class InterruptedStarts:
    """On some ranks a signal handler raises while operations of ``size`` elements are started."""

    ranks: tuple[int, ...]
    size: int
    delays: tuple[float, ...]


@dataclass(frozen=True)
class InterruptedWaits:
    """On all ranks a signal handler raises again and again while they wait for these."""

    count: int
    size: int


@dataclass(frozen=True)
class Training:
    """Models that are trained in turn: parameter ``i`` of model ``m`` has ``sizes[m][i]`` elements.

    ``missing``: how often a parameter has no gradient on a rank.
    """

    sizes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    missing: float
    momentum: float
    groups: int


Deed: TypeAlias = (
    AddSet
    | RemoveSet
    | Steps
    | Join
    | Messages
    | Disagree
    | Duplicate
    | InterruptedStarts
    | InterruptedWaits
    | Training
)


@dataclass(frozen=True)
class Act:
    """What is done, and the operations that are in flight all the while."""

    number: int
    deed: Deed
    beside: Batch = ()


@dataclass(frozen=True)
class Program:
    """A whole job."""

    seed: int
    hosts: tuple[int, ...]
    environment: dict[str, str]
    acts: tuple[Act, ...]

    @property
    def wiring(self) -> str:
        """How its ranks talk: shm, tcp or hosts."""
        transport = self.environment["HOROVOD_TRANSPORT"]
        return "hosts" if transport == "auto" else transport

    def only(self, acts: Sequence[int] | None) -> Program:
        """The program of these acts; of all for None."""
        return replace(self, acts=tuple(act for act in self.acts if acts is None or act.number in acts))

    def __str__(self) -> str:
        lines = [f"program {self.seed}: ranks on the hosts {list(self.hosts)}, {self.environment}"]
        for act in self.acts:
            lines.append(f"  act {act.number}: {act.deed}")
            lines += [f"    beside {operation}" for operation in act.beside]
        return "\n".join(lines)


def make_program(seed: int) -> Program:
    """The program of a seed."""
    return _Author(seed).program()


class _Author:
    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, random.Random(f"program {seed}")
        self.hosts, self.transport = self.draw.choice(WIRINGS)
        self.sets: dict[str, tuple[int, ...]] = {EVERYBODY: tuple(range(len(self.hosts)))}
        self.rows = operations.table()
        self.made = 0  # sets so far

    def program(self) -> Program:
        environment = {"HOROVOD_TRANSPORT": self.transport, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
        if self.draw.random() < 1 / 3:
            environment.update([self.draw.choice(SETTINGS)])
        acts = tuple(self.act(number) for number in range(self.draw.randint(3, 9)))
        return Program(self.seed, self.hosts, environment, acts)

    def act(self, number: int) -> Act:
        makers = (self.steps,) * 5 + (self.add_set,) * 3 + (self.remove_set, self.join, self.messages) + (
            self.disagree, self.duplicate, self.interrupted_starts, self.interrupted_waits, self.training,
        )  # fmt: skip
        deed = self.draw.choice(makers)(f"a{number}")
        beside = self.batch(f"a{number}.beside", 4) if self.draw.random() < 0.3 else ()
        busy = {deed.members} if isinstance(deed, AddSet | RemoveSet) else set()
        return Act(number, deed, tuple(o for o in beside if o.members not in busy))

    def batch(self, prefix: str, most: int, named: bool = False) -> Batch:
        """Operations whose names begin with ``prefix``; all have one if ``named``."""
        count = self.draw.randint(1, most)
        return tuple(self.operation(f"{prefix}.{at}", named) for at in range(count))

    def operation(self, name: str, named: bool) -> Operation:
        draw = self.draw
        kind, dtype, op = draw.choice(self.rows)
        if draw.random() < 0.4:
            kind, dtype = SMALL
            op = draw.choice(["Average", "Sum", "Max"])
        members = EVERYBODY if draw.random() < 0.6 else draw.choice(list(self.sets))
        number = draw.randrange(1_000_000)
        own_name = name if named or draw.random() < 0.8 else None
        shape = draw.choice(SHAPES)
        return Operation(
            kind, dtype, op, shape, members, number, own_name, draw.random() < 0.15, draw.random() < 0.4
        )

    def steps(self, prefix: str) -> Steps:
        draw = self.draw
        if draw.random() < 0.2:  # a loop of metrics, which schedules are learned for and votes carry
            few = tuple(self.metric(f"{prefix}.{at}") for at in range(draw.randint(1, 4)))
            return Steps((few,), (0,) * draw.randint(60, 200))
        threads = draw.choice([1, 1, 1, 2, 4])
        batches = tuple(
            self.batch(f"{prefix}.{at}", draw.choice([1, 3, 9, 20]), named=threads > 1)
            for at in range(draw.randint(1, 3))
        )
        pause = draw.choice([0.0, 0.0, 0.0, 0.0005, 0.003])
        grow, overlap = draw.random() < 0.15, draw.random() < 0.25
        return Steps(batches, self.order(len(batches)), threads, grow, overlap, pause)

    def metric(self, name: str) -> Operation:
        draw = self.draw
        members = EVERYBODY if draw.random() < 0.6 else draw.choice(list(self.sets))
        op, number = draw.choice(["Average", "Sum", "Max"]), draw.randrange(1_000_000)
        return Operation(
            *SMALL, op, (draw.choice([1, 2, 7]),), members, number, name, draw.random() < 0.7, False
        )

    def order(self, kinds: int) -> tuple[int, ...]:
        """Phases one after another, kinds in turn (a GAN), or any."""
        draw, steps = self.draw, self.draw.randint(5, 40)
        form = draw.choice(["phases", "turns", "any"])
        if form == "phases":
            length = draw.randint(3, 15)
            return tuple(step // length % kinds for step in range(steps))
        if form == "turns":
            often = draw.randint(1, 4)
            return tuple((0 if step % (often + 1) else kinds - 1) for step in range(steps))
        return tuple(draw.randrange(kinds) for _ in range(steps))

    def add_set(self, prefix: str) -> Deed:
        size = len(self.hosts)
        ranks = tuple(sorted(self.draw.sample(range(size), self.draw.randint(1, size - 1))))
        if ranks in self.sets.values():
            return self.steps(prefix)
        self.made += 1
        self.sets[f"set {self.made}"] = ranks
        return AddSet(f"set {self.made}", ranks)

    def remove_set(self, prefix: str) -> Deed:
        if len(self.sets) == 1:
            return self.add_set(prefix)
        members = self.draw.choice([members for members in self.sets if members != EVERYBODY])
        del self.sets[members]
        return RemoveSet(members)

    def join(self, prefix: str) -> Join:
        most = self.draw.randint(1, 12)
        return Join(self.batch(prefix, 6), tuple(self.draw.randint(0, most) for _ in self.hosts))

    def messages(self, prefix: str) -> Messages:
        draw, size = self.draw, len(self.hosts)
        return Messages(
            tuple(
                Message(draw.randrange(size), draw.randrange(size), draw.randrange(TAGS), draw.choice(SIZES))
                for _ in range(draw.randint(1, 60))
            )
        )

    def disagree(self, prefix: str) -> Disagree:
        return Disagree(self.draw.choice(disagreements.KINDS))

    def duplicate(self, prefix: str) -> Duplicate:
        return Duplicate(self.draw.randrange(len(self.hosts)))

    def interrupted_starts(self, prefix: str) -> InterruptedStarts:
        size = len(self.hosts)
        ranks = tuple(self.draw.sample(range(size), self.draw.randint(1, size)))
        delays = tuple(self.draw.uniform(0.0001, 0.005) for _ in range(self.draw.randint(3, 15)))
        return InterruptedStarts(ranks, self.draw.choice([1, 300, 1 << 12, 1 << 16]), delays)

    def interrupted_waits(self, prefix: str) -> InterruptedWaits:
        return InterruptedWaits(self.draw.randint(1, 12), self.draw.choice([1, 300, 1 << 12, 1 << 18]))

    def training(self, prefix: str) -> Training:
        draw = self.draw
        sizes = tuple(
            tuple(draw.choice([1, 7, 64, 3000]) for _ in range(draw.randint(1, 8)))
            for _ in range(draw.choice([1, 1, 2]))
        )
        missing = draw.choice([0.0, 0.1, 0.5])
        return Training(
            sizes, self.order(len(sizes)), missing, draw.choice([0.0, 0.5]), draw.choice([0, 0, 2])
        )
