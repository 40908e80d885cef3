"""The arithmetic of elastic sampling: through any history of failures and changes, each sample once."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.elastic.sampling import (
    Epoch,
    Processed,
    Progress,
    joined,
    order_of,
    processed_by,
    rest_of,
    share_of,
)

HISTORIES = 1000


@dataclass
class Member:
    """A process. ``model``: the samples that have gone into it, in order, since the epoch began."""

    epoch: Epoch
    model: list[int] = field(default_factory=list)
    age: tuple[int, int] = (0, 0)
    saved: tuple = ()

    def save(self):
        self.saved = (list(self.model), self.epoch.progress)

    def commit(self):
        self.save()
        self.age = (self.age[0], self.age[1] + 1)

    def restore(self):
        self.model = list(self.saved[0])
        self.epoch.load(self.saved[1])


class History:
    """A job that processes one epoch while its ranks are lost and come, as a seed has it."""

    def __init__(self, seed):
        self.dice = dice = random.Random(seed)
        self.length = dice.choice([0, 1, dice.randrange(12), dice.randrange(80)])
        self.uneven = dice.choice(["pad", "drop", "keep"])
        self.shuffle = dice.random() < 0.7
        self.batch = dice.randint(1, 5)
        self.most = dice.randint(1, 6)  # changes
        self.members = [self.newcomer() for _ in range(dice.randint(1, 5))]
        self.ranks_of_last_batch = 1
        self.sync()

    def newcomer(self):
        member = Member(Epoch(self.length, self.shuffle, 7, self.uneven))
        member.epoch.load(Progress(3))
        member.save()
        return member

    def sync(self):
        """As ObjectState.sync and IndicesHandler.sync."""
        members = self.members
        newest = max(member.age for member in members)
        holders = [member for member in members if member.age == newest]
        reports = [member.epoch.report for member in holders]
        model = list(holders[0].model)
        for rank, member in enumerate(members):
            member.epoch.unite(reports[0], reports, rank, len(members))
            member.model = list(model)
            member.age = (newest[0] + 1, newest[1])
            member.save()

    def batches(self):
        """Every rank's next batch; only those that have one."""
        found = [(member, list(member.epoch.left())[: self.batch]) for member in self.members]
        return [(member, batch) for member, batch in found if batch]

    def step(self):
        """One batch of all ranks, and perhaps a commit, which may be interrupted. False: none is left."""
        batches = self.batches()
        if not batches:
            return False
        self.ranks_of_last_batch = len(self.members)
        together = [index for _, batch in batches for index in batch]
        for member in self.members:  # those without a batch have joined
            member.model += together
        for member, batch in batches:
            member.epoch.record(self.batch if self.dice.random() < 0.5 else len(batch))
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

    def fail(self):
        """Some ranks are lost; the others go back to what they have committed."""
        self.most -= 1
        keep = self.dice.randint(1, len(self.members))
        self.members = self.dice.sample(self.members, keep)
        for member in self.members:
            member.restore()
        self.meet()

    def resize(self):
        """Hosts come and go between two steps: nothing is rolled back."""
        self.most -= 1
        before = list(self.members)
        self.members = self.dice.sample(before, self.dice.randint(1, len(before)))
        removed = len(self.members) < len(before)
        if removed and self.uneven != "keep" and self.dice.random() < 0.5:  # then nobody synchronizes
            self.deal()
        else:
            self.meet()

    def meet(self):
        for _ in range(self.dice.choice([0, 0, 1, 3])):  # of one that fails while it does
            self.deal()
        self.members += [self.newcomer() for _ in range(self.dice.choice([0, 1, 2]))]
        self.dice.shuffle(self.members)
        self.deal(len(self.members))
        self.sync()

    def deal(self, ranks=None):
        for rank, member in enumerate(self.members):
            if member.age > (0, 0):
                member.epoch.deal(rank, ranks or len(self.members))

    def run(self):
        while self.step():
            allowed = (len(self.members),) if self.uneven == "keep" else (0, len(self.members))
            if self.most and len(self.batches()) in allowed:
                chance = self.dice.random()
                if chance < 0.15:
                    self.fail()
                elif chance < 0.3:
                    self.resize()
        return Counter(self.members[0].model)


@pytest.mark.parametrize("part", range(10))
def test_each_sample_is_processed_once_through_any_history(part):
    seen = Counter()
    for seed in range(part * HISTORIES // 10, (part + 1) * HISTORIES // 10):
        history = History(seed)
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


@given(st.integers(0, 40), st.integers(1, 9), st.sampled_from(["pad", "drop", "keep"]))
def test_shares(length, ranks, uneven):
    rest = list(range(100, 100 + length))
    shares = [share_of(rest, rank, ranks, uneven) for rank in range(ranks)]
    sizes = {len(share) for share in shares}
    counts = Counter(index for share in shares for index in share)
    if uneven == "keep":
        assert max(sizes) - min(sizes) <= 1
        assert counts == Counter(rest)
    else:
        assert len(sizes) == 1  # so all make the same number of batches, of any size
        assert sum(abs(counts[index] - 1) for index in rest) < ranks
        assert set(counts) <= set(rest)


@given(
    st.integers(1, 30),
    st.integers(1, 4),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_ranks_that_do_not_keep_pace_are_united_exactly(length, ranks, done, more):
    epochs = [Epoch(length, True, 1, "keep") for _ in range(ranks)]
    before = joined(Processed(min(2, length)), [place for place in more if place < length])
    processed = {order_of(length, True, 1, 5)[place] for place in range(length)} - {
        order_of(length, True, 1, 5)[place] for place in rest_of(length, before)
    }
    for rank, epoch in enumerate(epochs):
        epoch.load(Progress(5, before, ranks, rank, 0))
        own = list(epoch.left())[: done[rank]]
        epoch.record(len(own))
        processed |= set(own)
        epoch.deal(rank, ranks + 1)  # as reset does
    reports = [epoch.report for epoch in epochs]
    left = []
    for rank, epoch in enumerate(epochs):
        epoch.unite(reports[-1], reports, rank, ranks)
        left += list(epoch.left())
    assert sorted(left) == sorted(set(range(length)) - processed)


@given(st.integers(0, 20), st.lists(st.integers(0, 30)))
def test_joined(first, places):
    result = joined(Processed(first), places)
    assert {*range(result.first), *result.more} == {*range(first), *places}
    assert result.first not in result.more
    assert list(result.more) == sorted(result.more)


def test_a_rank_that_is_lost_has_kept_pace():
    progress = Progress(0, Processed(3), ranks=3, rank=1, done=2)
    assert processed_by(20, progress) == Processed(9)
    assert processed_by(20, progress, {0: 3}) == Processed(10)
    assert processed_by(8, progress) == Processed(8)


def test_an_order_depends_on_seed_and_epoch_only():
    orders = [tuple(order_of(50, True, seed, epoch)) for seed in (0, 100) for epoch in range(3)]
    assert len(set(orders)) == 6
    assert order_of(50, True, 100, 2) == list(orders[-1])
    assert order_of(5, False, 1, 1) == [0, 1, 2, 3, 4]


def test_wrong_arguments():
    with pytest.raises(ValueError, match='"pad", "drop" or "keep"'):
        Epoch(3, uneven="fill")
    with pytest.raises(ValueError, match="at least 0"):
        Epoch(3).record(-1)
