"""Random histories of elastic training: one epoch whose ranks are lost and come, and a ledger of the samples
that have gone into the model.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horovod.elastic.indices import ElasticIndices

COUNT = 1000

Iteration = Callable[[], Iterable[list[int]]]
"""Begins to read, in batches, the samples that are left."""

Reader = Callable[[ElasticIndices, int], Iteration]
"""How a framework reads the samples of a rank, of its indices and the size of a batch. A process has one for
all its life: every iteration begins with the samples that are left then.
"""


class Member:
    """A process. ``model``: the samples that have gone into it, in order, since the epoch began."""

    def __init__(self, indices: Any, read: Iteration) -> None:
        self.indices = indices
        self.model: list[int] = []
        self.age = (0, 0)
        self._read = read
        self._batches: Iterator[list[int]] | None = None
        self._next: list[int] | None = None
        self.save()

    def batch(self) -> list[int]:
        """The next; empty when none is left. An iteration goes on until the ranks change."""
        if self._batches is None:
            self._batches, self._next = iter(self._read()), None
        if self._next is None:
            self._next = next(self._batches, [])
        return self._next

    def train(self, together: list[int], count: int | None) -> None:
        """A batch of all ranks, of which this one records ``count``; None: it has joined."""
        self.model += together
        if count is not None:
            self.indices.record_batch(0, count)
            self._next = None

    def save(self) -> None:
        self._saved = (list(self.model), self.indices.progress)

    def commit(self) -> None:
        self.save()
        self.age = (self.age[0], self.age[1] + 1)

    def restore(self) -> None:
        self.model = list(self._saved[0])
        self.indices.go_back(self._saved[1])
        self._batches = None

    def reset(self, rank: int, ranks: int) -> None:
        self.indices.where = (rank, ranks)
        self.indices.reset()
        self._batches = None

    def take_over(self, model: list[int], winner: Any, others: list[Any], rank: int, ranks: int) -> None:
        self.indices.where = (rank, ranks)
        self.indices.unite(winner, others)
        self.model = list(model)
        self._batches = None


class History:
    """A job that processes one epoch while its ranks are lost and come, as a seed has it.

    ``kind``: of indices, or a sampler. ``read``: how samples are read.
    """

    def __init__(self, seed: int, kind: type[ElasticIndices], read: Reader) -> None:
        # Each process has a place of its own.
        self.kind = type("Placed", (kind,), {"where": (0, 1), "_where": lambda indices: indices.where})
        self.read = read
        self.dice = dice = random.Random(seed)
        self.length = dice.choice([0, 1, dice.randrange(12), dice.randrange(80)])
        self.uneven = dice.choice(["pad", "drop", "keep"])
        self.shuffle = dice.random() < 0.7
        self.batch = dice.randint(1, 5)
        self.most = dice.randint(1, 6)  # changes
        self.members = [self.newcomer() for _ in range(dice.randint(1, 5))]
        self.ranks_of_last_batch = 1
        self.sync()

    def newcomer(self) -> Member:
        indices = self.kind(range(self.length), self.shuffle, 7, self.uneven)
        indices.set_epoch(3)
        return Member(indices, self.read(indices, self.batch))

    def sync(self) -> None:
        """As ObjectState.sync and IndicesHandler.sync."""
        members = self.members
        newest = max(member.age for member in members)
        holders = [member for member in members if member.age == newest]
        reports = [member.indices.report for member in holders]
        model = list(holders[0].model)
        for rank, member in enumerate(members):
            member.take_over(model, reports[0], reports, rank, len(members))
            member.age = (newest[0] + 1, newest[1])
            member.save()

    def batches(self) -> list[tuple[Member, list[int]]]:
        """Every rank's next batch; only those that have one."""
        return [(member, batch) for member in self.members if (batch := member.batch())]

    def step(self) -> bool:
        """One batch of all ranks, and perhaps a commit, which may be interrupted. False: none is left."""
        batches = self.batches()
        if not batches:
            return False
        self.ranks_of_last_batch = len(self.members)
        together = [index for _, batch in batches for index in batch]
        own = {id(member): batch for member, batch in batches}
        for member in self.members:
            count = self.batch if self.dice.random() < 0.5 else len(own.get(id(member), ()))
            member.train(together, count if id(member) in own else None)
        if self.dice.random() < 0.6:
            committing = [member for member, _ in batches]
            if self.most and self.dice.random() < 0.2:
                for member in self.dice.sample(committing, self.dice.randint(0, len(committing))):
                    member.commit()
                self.fail()
            else:
                for member in committing:
                    member.commit()
        return True

    def fail(self) -> None:
        """Some ranks are lost; the others go back to what they have committed."""
        self.most -= 1
        keep = self.dice.randint(1, len(self.members))
        self.members = self.dice.sample(self.members, keep)
        for member in self.members:
            member.restore()
        self.meet()

    def resize(self) -> None:
        """Hosts come and go between two steps: nothing is rolled back."""
        self.most -= 1
        before = list(self.members)
        self.members = self.dice.sample(before, self.dice.randint(1, len(before)))
        removed = len(self.members) < len(before)
        if removed and self.uneven != "keep" and self.dice.random() < 0.5:  # then nobody synchronizes
            self.deal()
        else:
            self.meet()

    def meet(self) -> None:
        for _ in range(self.dice.choice([0, 0, 1, 3])):  # of one that fails while it does
            self.deal()
        self.members += [self.newcomer() for _ in range(self.dice.choice([0, 1, 2]))]
        self.dice.shuffle(self.members)
        self.deal(len(self.members))
        self.sync()

    def deal(self, ranks: int | None = None) -> None:
        for rank, member in enumerate(self.members):
            if member.age > (0, 0):
                member.reset(rank, ranks or len(self.members))

    def run(self) -> Counter[int]:
        while self.step():
            allowed = (len(self.members),) if self.uneven == "keep" else (0, len(self.members))
            if self.most and len(self.batches()) in allowed:
                chance = self.dice.random()
                if chance < 0.15:
                    self.fail()
                elif chance < 0.3:
                    self.resize()
        return Counter(self.members[0].model)


def check(seeds: Iterable[int], kind: type[ElasticIndices], read: Reader) -> None:
    """Each sample is processed once in each history, but for as many at the end of the epoch as ``uneven``
    allows.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed, kind, read)
        counts, ranks = history.run(), len(history.members)
        surplus = sum(counts.values()) - history.length
        seen[history.uneven] += 1
        assert set(counts) <= set(range(history.length)), seed
        if history.uneven == "keep":
            assert surplus == 0 and len(counts) == history.length, seed
        elif history.uneven == "pad":
            assert 0 <= surplus < history.ranks_of_last_batch and len(counts) == history.length, seed
        else:
            assert -ranks < surplus <= 0 and set(counts.values()) <= {1}, seed
        assert all(member.model == history.members[0].model for member in history.members), seed
    assert len(seen) == 3
