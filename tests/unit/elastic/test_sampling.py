"""The arithmetic of elastic sampling: through any history of failures and changes, each sample once."""

from collections import Counter

import elastic_histories
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.elastic.indices import ElasticIndices
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


def read(indices, size):
    def batches():
        left = list(indices)
        return [left[first : first + size] for first in range(0, len(left), size)]

    return batches


@pytest.mark.parametrize("part", range(10))
def test_each_sample_is_processed_once_through_any_history(part):
    elastic_histories.check(range(part, elastic_histories.COUNT, 10), ElasticIndices, read)


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
