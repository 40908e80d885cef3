"""What one rank of a random program does: every act, each result against ``reference`` on the spot.

Data follow from the program. In which order a rank starts and awaits its operations, where it rests, and
which of its threads does what, follows from the program and the rank.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mp"))  # which has torch's glue

import numpy as np
import random_program as acts
import reference
import torch
from disagreements import check_works, disagree
from operations import PLANS, Case, Plan
from random_program import EVERYBODY, LAPS, Act, Batch, Operation
from rank_interrupts import interrupted_starts, interrupted_waits
from rank_training import train
from shared_tests import own
from torch_glue import TorchRunning

import horovod.torch as hvd

VARIANTS = 3  # of the data of an operation; so many steps in a row have others each
COUNTERS = (
    "scheduled",
    "carried",
    "schedules_left",
)  # batches of learned schedules, in votes; schedules left


class Checked(TorchRunning):
    """Its data are made once for all steps that have the same.

    ``use`` tells one use of the operation from another, alike on all ranks.
    """

    use = ""

    def planned(self, case: Case) -> Plan:
        here = None if case.present is None else tuple(case.present)
        return _plan(case.kind, case.dtype, case.op, case.number, case.shape, case.process_set, here)


@lru_cache(maxsize=4096)
def _plan(
    kind: str,
    dtype: str,
    op: str,
    number: int,
    shape: tuple[int, ...],
    members: Any,
    here: Sequence[int] | None,
) -> Plan:
    return PLANS[kind](
        Case(kind, dtype, op, number, shape, members, present=None if here is None else list(here))
    )


@dataclass
class Player:
    """One rank.

    ``order``: drawn from for what is this rank's own. ``told``: what all those members of a process set who
    know of it must hold or hear alike, by process set and occasion.
    """

    program: acts.Program
    order: random.Random
    sets: dict[str, Any] = field(default_factory=lambda: {EVERYBODY: hvd.global_process_set})
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    checked: int = 0
    act: int = 0
    step: int = 0

    @property
    def rank(self) -> int:
        return hvd.rank()

    @property
    def size(self) -> int:
        return hvd.size()

    def play(self, act: Act) -> None:
        """One act."""
        self.act = act.number
        flying = self.start(act.beside)
        deed = act.deed
        DEEDS[type(deed)](self, deed, f"a{act.number}")
        self.finish(flying)

    def tell(self, members: str, occasion: str, text: str) -> None:
        """Something that must be equal on all members of a set."""
        self.told.setdefault(members, {})[f"{self.act} {occasion}"] = text

    def start(self, batch: Batch, step: int = 0, **changes: Any) -> list[Checked]:
        """Starts this rank's part in an order of its own, then what is waited for in the common one. Returns
        what is to be finished.
        """
        mine = [o for o in batch if o.members in self.sets and self.sets[o.members].included()]
        cases = [self.case(operation, step, **changes) for operation in mine]
        flying = [Checked(case) for case in cases]
        for one in flying:
            one.use = f"step {step} {one.case.number}"
        by_case = {id(one.case): one for one in flying}
        for case in self.shuffled([case for case in cases if not case.wait]):
            self.rest(changes.get("pause", 0.0))
            by_case[id(case)].start()
        for one in flying:
            if one.case.wait:
                one.start()
        return flying

    def case(
        self, operation: Operation, step: int, counts: Sequence[int] = (), grown: int = 0, pause: float = 0.0
    ) -> Case:
        """What the operation is in a step, of which rank ``r`` runs ``counts[r]``."""
        o, members = operation, self.sets[operation.members]
        hops = 0 if self.program.wiring == "shm" else self.size
        shape = (o.shape[0] + grown, *o.shape[1:])
        case = Case(o.kind, o.dtype, o.op, o.number + LAPS * (step % VARIANTS), shape, members, hops)
        if counts:
            case.present = [at for at, rank in enumerate(members.ranks) if counts[rank] > step]
        case.name, case.wait, case.in_place = o.name, o.wait, o.in_place
        return case

    def shuffled(self, cases: list[Case]) -> list[Case]:
        """But that the unnamed ones of a set stay in their order."""
        mixed = list(cases)
        self.order.shuffle(mixed)
        unnamed = {
            case.process_set: iter([c for c in cases if c.name is None and c.process_set is case.process_set])
            for case in cases
        }
        return [case if case.name else next(unnamed[case.process_set]) for case in mixed]

    def rest(self, most: float) -> None:
        """Now and then, for ``most`` seconds at most."""
        if most and self.order.random() < 0.2:
            time.sleep(self.order.uniform(0, most))

    def finish(self, flying: list[Checked], order: random.Random | None = None) -> None:
        """Awaits them in an order of this rank, and checks each."""
        (order or self.order).shuffle(flying)
        for running in flying:
            if self.order.random() < 0.1:
                while not running.case.wait and not hvd.poll(running.called):
                    time.sleep(0.0002)
            arrays = running.finish()
            self.checked += 1
            if running.plan.everywhere:
                self.tell(self.label(running.case), running.use, reference.digest(arrays))

    def label(self, case: Case) -> str:
        """The name of its process set in the program."""
        return next(label for label, members in self.sets.items() if members is case.process_set)


def _add_set(player: Player, deed: acts.AddSet, prefix: str) -> None:
    if list(deed.ranks) not in [members.ranks for members in player.sets.values()]:
        player.sets[deed.members] = hvd.add_process_set(list(deed.ranks))


def _remove_set(player: Player, deed: acts.RemoveSet, prefix: str) -> None:
    if deed.members in player.sets:
        assert hvd.remove_process_set(player.sets.pop(deed.members)), "a registered set was not removed"


def _steps(player: Player, deed: acts.Steps, prefix: str) -> None:
    before: list[Checked] = []
    kind_before = -1
    for player.step, kind in enumerate(deed.order):
        grown = random.Random(f"{prefix} {player.step}").choice([0, 0, 1, 77]) if deed.growing else 0
        if kind == kind_before:  # its names are still in flight
            player.finish(before)
            before = []
        if deed.threads > 1:
            _in_threads(player, deed.batches[kind], deed.threads, grown, deed.pause)
            continue
        flying = player.start(deed.batches[kind], player.step, grown=grown, pause=deed.pause)
        player.finish(before if deed.overlap else flying)
        before, kind_before = (flying, kind) if deed.overlap else ([], -1)
    player.finish(before)


def _in_threads(player: Player, batch: Batch, threads: int, grown: int, pause: float) -> None:
    parts: list[list[Operation]] = [[] for _ in range(threads)]
    for operation in batch:
        player.order.choice(parts).append(operation)
    failures: list[BaseException] = []

    def run(part: Batch) -> None:
        try:
            player.finish(player.start(part, player.step, grown=grown, pause=pause))
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=run, args=(tuple(part),)) for part in parts if part]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


def _join(player: Player, deed: acts.Join, prefix: str) -> None:
    flying: list[Checked] = []
    for step in range(deed.counts[player.rank]):
        player.finish(flying)
        flying = player.start(deed.batch, step, counts=deed.counts)
    if player.order.random() < 0.5:
        player.finish(flying)
        flying = []
    last = int(hvd.join())
    assert last in range(player.size), f"{last} joined last"
    player.tell(EVERYBODY, "joined last", str(last))
    player.finish(flying)


def _messages(player: Player, deed: acts.Messages, prefix: str) -> None:
    numbered = list(enumerate(deed.messages))
    sends = [each for each in numbered if each[1].source == player.rank]
    receives = [each for each in numbered if each[1].dest == player.rank]
    started = []
    while sends or receives:
        if sends and (not receives or player.order.random() < 0.5):
            number, message = sends.pop(0)
            tensor = torch.from_numpy(_content(message.size, number))
            started.append(
                (False, number, message, tensor, hvd.send_async(tensor, message.dest, message.tag))
            )
        else:
            number, message = receives.pop(0)
            tensor = torch.empty(message.size)
            started.append(
                (True, number, message, tensor, hvd.recv_async(tensor, message.source, message.tag))
            )
    player.order.shuffle(started)
    for received, number, message, tensor, handle in started:
        sender = hvd.synchronize(handle)
        if received:
            assert sender == message.source, f"{message} came from {sender}"
            assert np.array_equal(tensor.numpy(), _content(message.size, number)), f"{message}: {tensor[:4]}"
            player.checked += 1


def _content(size: int, number: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32) % 997 + number


def _disagree(player: Player, deed: acts.Disagree, prefix: str) -> None:
    framework = own()
    try:
        disagree(framework, deed.kind)
    except framework.disagreement as error:
        player.tell(EVERYBODY, "disagreement", str(error))
    else:
        raise AssertionError(f"no error although the ranks disagree about the {deed.kind}")
    check_works(framework)
    player.checked += 2


def _duplicate(player: Player, deed: acts.Duplicate, prefix: str) -> None:
    """The name is in flight until its owner lets the others start theirs."""
    ones = torch.ones(3)
    if player.rank == deed.rank:
        first = hvd.allreduce_async(ones, name=f"{prefix}.twice", op=hvd.Sum)
        try:
            hvd.allreduce_async(ones, name=f"{prefix}.twice", op=hvd.Sum)
        except ValueError:
            player.checked += 1
        else:
            raise AssertionError("a name in flight was taken a second time")
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(ones, name=f"{prefix}.twice", op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [player.size] * 3, "the first of the two is wrong"


DEEDS: dict[type, Callable[[Player, Any, str], None]] = {
    acts.AddSet: _add_set,
    acts.RemoveSet: _remove_set,
    acts.Steps: _steps,
    acts.Join: _join,
    acts.Messages: _messages,
    acts.Disagree: _disagree,
    acts.Duplicate: _duplicate,
    acts.InterruptedStarts: interrupted_starts,
    acts.InterruptedWaits: interrupted_waits,
    acts.Training: train,
}


def ranks_play(seed: int, only: list[int] | None = None) -> dict[str, Any]:
    """Plays a program, or some of its acts; returns what was checked, and what all must have been told."""
    program = acts.make_program(seed).only(only)
    hvd.init()
    player = Player(program, random.Random(f"{seed} of rank {hvd.rank()}"))
    for act in program.acts:
        try:
            player.play(act)
        except BaseException as error:
            word = "WRONG RESULT" if isinstance(error, AssertionError) else "UNEXPECTED ERROR"
            print(f"{word} in act {act.number}, step {player.step}, rank {player.rank}: {act.deed}")
            raise
    hvd.barrier()
    counted = hvd.counters()
    hvd.shutdown()
    return {"checked": player.checked, "told": player.told, **{name: counted[name] for name in COUNTERS}}
