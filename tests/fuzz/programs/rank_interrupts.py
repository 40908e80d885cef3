"""Acts in which a signal handler raises, as Ctrl-C in a notebook does, at any instruction of a rank."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import random_program as acts
import torch

import horovod.torch as hvd

if TYPE_CHECKING:
    from rank_player import Player

AGAIN = 0.05  # seconds after which the handler raises again, where the exception was swallowed
IN_FLIGHT = 3
MOST_INTERRUPTS = 20
CANARIES = 16


class Alarm(Exception):
    """Raised by the handler of a signal, in turn with KeyboardInterrupt, which is no Exception."""


ERRORS = (Alarm, KeyboardInterrupt)


class Alarms:
    """While ``armed``, SIGALRM raises."""

    armed = False
    rings = 0

    def ring(self, *_: Any) -> None:
        if self.armed:
            self.rings += 1
            raise ERRORS[self.rings % 2]

    def arm(self, seconds: float) -> None:
        """Call it where the exception is expected."""
        self.armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)

    def disarm(self) -> None:
        """After it was caught."""
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _alarms() -> Iterator[Alarms]:
    alarms = Alarms()
    before = signal.signal(signal.SIGALRM, alarms.ring)
    yield alarms
    alarms.disarm()
    signal.signal(signal.SIGALRM, before)


def interrupted_starts(player: Player, deed: acts.InterruptedStarts, prefix: str) -> None:
    """A rank that is interrupted does not know whether the operation it was starting is in flight. All others
    are right on every rank, and what was forgotten in flight writes to no memory that is used again.
    """
    with _alarms() as alarms:
        for turn, delay in enumerate(deed.delays):
            player.step = turn
            _interrupt_starts(player, alarms, deed, f"{prefix}.{turn}", delay)


def _interrupt_starts(
    player: Player, alarms: Alarms, deed: acts.InterruptedStarts, prefix: str, delay: float
) -> None:
    flying: list[tuple[torch.Tensor, int]] = []  # by number

    def start() -> None:
        tensor = torch.full((deed.size,), float(player.rank + 1))
        handle = hvd.allreduce_async_(tensor, name=f"{prefix}.{len(flying)}", op=hvd.Sum)
        flying.append((tensor, handle))

    interrupted = player.rank in deed.ranks
    try:
        if interrupted:
            alarms.arm(delay)
        while interrupted or len(flying) < IN_FLIGHT:
            start()
            if len(flying) > 50:
                time.sleep(0.001)
    except ERRORS:
        alarms.disarm()
    counts = hvd.allgather_object((len(flying), interrupted), name=f"{prefix}.agree")
    unknown = {count for count, interrupted in counts if interrupted}
    started = max(count + (count in unknown) for count, _ in counts)
    canaries = _forget(flying, unknown, deed.size)
    for number in range(len(flying), started):
        if interrupted and number == counts[player.rank][0]:
            flying.append((torch.empty(0), -1))
        else:
            start()
    for number, (tensor, handle) in enumerate(flying):
        if number not in unknown:
            hvd.synchronize(handle)
            assert tensor.eq(_sum(player)).all(), f"operation {number}: {tensor[:4]}"
            player.checked += 1
    del flying[:]
    hvd.barrier()
    for canary in canaries:
        assert canary.eq(-7).all(), f"memory of the program was overwritten: {canary[:4]}"


def _forget(flying: list[tuple[torch.Tensor, int]], unknown: set[int], size: int) -> list[torch.Tensor]:
    """Drops the tensors of those of which some rank knows nothing, and takes their memory for others."""
    for number in unknown & set(range(len(flying))):
        flying[number] = (torch.empty(0), -1)
    gc.collect()
    return [torch.full((size,), -7.0) for _ in range(CANARIES)]


def _sum(player: Player) -> float:
    return player.size * (player.size + 1) / 2


def interrupted_waits(player: Player, deed: acts.InterruptedWaits, prefix: str) -> None:
    """A wait that was interrupted is taken up again. The result may have been there and lost with the call,
    so the operations are in place.
    """
    tensors = [torch.full((deed.size,), float(player.rank + 1)) for _ in range(deed.count)]
    handles = [
        hvd.allreduce_async_(tensor, name=f"{prefix}.{at}", op=hvd.Sum) for at, tensor in enumerate(tensors)
    ]
    with _alarms() as alarms:
        for handle in handles:
            while True:
                try:
                    if alarms.rings < MOST_INTERRUPTS:
                        alarms.arm(player.order.uniform(0.00005, 0.002))
                    hvd.synchronize(handle)
                    alarms.disarm()
                    break
                except ERRORS:
                    alarms.disarm()
    for at, tensor in enumerate(tensors):
        assert tensor.eq(_sum(player)).all(), f"operation {at}: {tensor[:4]}"
        player.checked += 1
