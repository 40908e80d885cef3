"""Which samples of an epoch are left, and who takes which, when ranks come and go in the middle of it.

The *order* of an epoch is a list of all indices, which depends on seed and epoch alone. A *place* is a
position in it. The *rest* are the places that are not processed; a *deal* gives the rest to the ranks in
turn, as cards: rank r of R gets the places r, r + R, r + 2R, ... of the rest, its *share*. All ranks process
their shares from the front at the same pace, so the places that are processed are nearly always the first
ones, and each rank knows those of all ranks, also of a rank that is lost: what was committed before is in the
model that the others hold, and is not processed again; what was not is rolled back, and is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

Uneven = Literal["pad", "drop", "keep"]
"""What becomes of the rest when it cannot be dealt out evenly. See ``Epoch``."""


class Processed(NamedTuple):
    """The places that are processed: the ``first`` so many, and ``more`` beyond them, ascending."""

    first: int = 0
    more: tuple[int, ...] = ()


class Progress(NamedTuple):
    """How far a rank has come in an epoch.

    ``before``: what was processed before the last deal, to ``ranks`` ranks; this one is ``rank`` and has
    processed the first ``done`` places of its share.
    """

    epoch: int = 0
    before: Processed = Processed()
    ranks: int = 1
    rank: int = 0
    done: int = 0


def order_of(length: int, shuffle: bool, seed: int, epoch: int) -> list[int]:
    """All indices, in the order of an epoch."""
    order = list(range(length))
    if shuffle:
        random.Random(seed + epoch).shuffle(order)
    return order


def rest_of(length: int, processed: Processed) -> list[int]:
    """The places that are not processed, ascending."""
    rest = list(range(processed.first, length))
    if processed.more:
        taken = set(processed.more)
        rest = [place for place in rest if place not in taken]
    return rest


def share_of(rest: list[int], rank: int, ranks: int, uneven: Uneven) -> list[int]:
    """The places of one rank."""
    size = len(rest) // ranks
    if uneven == "keep" or len(rest) % ranks == 0:
        return rest[rank::ranks]
    if uneven == "drop":
        return rest[rank : size * ranks : ranks]
    return [rest[number % len(rest)] for number in range(rank, (size + 1) * ranks, ranks)]


def processed_by(length: int, progress: Progress, done: Mapping[int, int] | None = None) -> Processed:
    """What is processed when the ranks of a deal have done so much of their shares.

    Args:
        length: of the epoch.
        progress: of one rank.
        done: how much others have done, by their ranks in the deal; those that are missing as much as this.
    """
    known = {**(done or {}), progress.rank: progress.done}
    at_one_pace = set(known.values()) == {progress.done}
    if at_one_pace and not progress.before.more:
        return Processed(min(progress.before.first + progress.done * progress.ranks, length))
    rest = rest_of(length, progress.before)
    places = (
        place
        for number, place in enumerate(rest)
        if number // progress.ranks < known.get(number % progress.ranks, progress.done)
    )
    return joined(progress.before, places)


def joined(processed: Processed, places: Iterable[int]) -> Processed:
    """``processed`` and ``places``."""
    first, more = processed.first, sorted({*processed.more, *places})
    within = 0
    for place in more:
        if place > first:
            break
        first = max(first, place + 1)
        within += 1
    return Processed(first, tuple(more[within:]))


def united(length: int, winner: Progress, others: Iterable[Progress]) -> Processed:
    """What all ranks have processed together.

    Args:
        length: of the epoch.
        winner: of the rank whose state all have got.
        others: of ranks that hold the same commit. A rank that nobody hears of has kept pace with the winner.
    """
    same = [other for other in others if other[:3] == winner[:3]]  # of the same deal
    processed = processed_by(length, winner, {other.rank: other.done for other in same})
    for other in others:
        if other not in same and other.epoch == winner.epoch:
            mine = processed_by(length, other)
            processed = joined(processed, (*range(processed.first, mine.first), *mine.more))
    return processed


class Epoch:
    """The share of one rank in the current epoch, through any changes of the ranks.

    After every deal the shares of two ranks differ by one sample at most. A loop that waits for all ranks in
    every batch (``DistributedOptimizer`` does) needs more: all ranks must make the same number of batches, or
    the one with a batch more waits for the others for ever. Which sizes do depends on the batch, so equal
    shares alone are safe. ``uneven`` says how to get them:

    * ``"pad"``: the ranks that would have one sample less repeat one of the rest. At the end of an epoch, at
      most R - 1 samples were processed twice, and none was left out. It is the default, because it needs
      nothing of the loop, and no rank ever waits in vain.
    * ``"drop"``: at most R - 1 samples of an epoch are left out, and none is processed twice.
    * ``"keep"``: each sample is processed exactly once. The shares differ, so the loop has to call
      ``hvd.join()`` after the last batch of an epoch, and to begin the next epoch before anything is
      committed: a rank that waits in ``join`` does not see what the others process.

    What changes the ranks in the middle of an epoch adds nothing to this: padding and dropping concern the
    last batch only.

    Args:
        length: how many samples an epoch has.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders; equal on all ranks.
        uneven: see above.

    Attributes:
        epoch: its number.
        rank, ranks: of the last deal.
        share: the indices that this rank got in the last deal.
        dealt: how many samples all ranks got.
    """

    def __init__(self, length: int, shuffle: bool = True, seed: int = 0, uneven: Uneven = "pad") -> None:
        if uneven not in ("pad", "drop", "keep"):
            raise ValueError(f'uneven is "pad", "drop" or "keep", not {uneven!r}')
        self.length, self.shuffle, self.seed, self.uneven = length, shuffle, seed, uneven
        self.epoch, self.rank, self.ranks = 0, 0, 1
        self.share: list[int] = []
        self.dealt = 0
        self._before = Processed()
        self._done = 0
        self._earlier: Progress | None = None  # before the last deal, while nothing was processed since
        self._order: list[int] = []
        self._order_is_of: int | None = None

    @property
    def progress(self) -> Progress:
        """How far this rank has come, with regard to the last deal."""
        return Progress(self.epoch, self._before, self.ranks, self.rank, self._done)

    @property
    def report(self) -> Progress:
        """How far this rank has come, for ``unite``: with regard to the deal in which it has come there."""
        return self._earlier or self.progress

    @property
    def processed(self) -> Processed:
        """What all ranks have processed: they keep pace with this one."""
        return processed_by(self.length, self.progress)

    @property
    def order(self) -> list[int]:
        """All indices, in the order of this epoch."""
        if self._order_is_of != self.epoch:
            self._order = order_of(self.length, self.shuffle, self.seed, self.epoch)
            self._order_is_of = self.epoch
        return self._order

    def remaining(self) -> list[int]:
        """The indices that were left at the last deal."""
        return [self.order[place] for place in rest_of(self.length, self._before)]

    def begin(self, epoch: int, rank: int, ranks: int) -> None:
        """Begins an epoch, and deals all of it. The epoch that it is in already goes on instead."""
        if epoch != self.epoch:
            self.load(Progress(epoch, Processed(), ranks, rank, 0))

    def deal(self, rank: int, ranks: int) -> None:
        """Deals out what is left."""
        earlier = self.report
        self.load(Progress(self.epoch, self.processed, ranks, rank, 0))
        self._earlier = earlier

    def record(self, count: int) -> None:
        """This rank, as all others, has processed the next ``count`` samples of its share."""
        if count < 0:
            raise ValueError(f"a batch has at least 0 samples, not {count}")
        self._earlier = None
        self._done = min(self._done + count, len(self.share))

    @property
    def is_done(self) -> bool:
        """Whether this rank has processed its share."""
        return self._done >= len(self.share)

    def left(self) -> Iterator[int]:
        """The indices of this rank that it has not processed."""
        return iter(self.share[self._done :])

    def load(self, progress: Progress) -> None:
        """Goes back, or on, to where a rank was."""
        self.epoch, self._before, self.ranks, self.rank, self._done = progress
        rest = rest_of(self.length, self._before)
        self.share = [self.order[place] for place in share_of(rest, self.rank, self.ranks, self.uneven)]
        self.dealt = len(rest) if self.uneven == "keep" else len(self.share) * self.ranks
        self._earlier = None

    def resume(self, epoch: int, count: int, indices: Iterable[int] | None, rank: int, ranks: int) -> None:
        """Goes on in an epoch of which the first ``count`` samples, or those of these ``indices``, are
        processed; deals the rest.
        """
        self.epoch = epoch
        processed = Processed(min(count, self.length))
        if indices is not None:
            where = {index: place for place, index in enumerate(self.order)}
            processed = joined(Processed(), (where[index] for index in indices if index in where))
        self.load(Progress(epoch, processed, ranks, rank, 0))

    def unite(self, winner: Progress, others: Iterable[Progress], rank: int, ranks: int) -> None:
        """Takes over where the winner is, counts what the others have processed too, and deals the rest."""
        processed = united(self.length, winner, list(others))
        self.load(Progress(winner.epoch, processed, ranks, rank, 0))
