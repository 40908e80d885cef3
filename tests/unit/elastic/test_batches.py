"""Global batches: what each rank computes adds up to the same step, however many ranks there are."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.common import basics
from horovod.elastic.batches import ElasticBatches, parts_of, passes_for, split
from horovod.elastic.rate import RateScale
from horovod.torch.elastic import TorchState

SIZES = st.integers(1, 40)
LARGEST = st.none() | st.integers(1, 50)


def on(batches: ElasticBatches, rank: int, ranks: int) -> ElasticBatches:
    """As if it belonged to this rank."""
    batches._rank, batches._ranks = rank, ranks
    batches.passes = passes_for(batches.batch_size, ranks, batches.largest)
    return batches


@given(st.integers(0, 200), SIZES)
def test_runs_are_even_and_leave_nothing_out(length: int, parts: int) -> None:
    runs = split(length, parts)
    assert [place for run in runs for place in run] == list(range(length))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


@given(st.integers(1, 300), SIZES, LARGEST)
def test_parts_of_all_ranks_are_the_batch(length: int, ranks: int, largest: int | None) -> None:
    batch = random.Random(length).sample(range(1000), length)
    passes = passes_for(length, ranks, largest)
    by_rank = [parts_of(batch, rank, ranks, passes) for rank in range(ranks)]
    assert {len(parts) for parts in by_rank} == {passes}
    assert all([part.ends_step for part in parts] == [False] * (passes - 1) + [True] for parts in by_rank)
    used = [index for parts in by_rank for part in parts if part.weight > 0 for index in part.indices]
    assert sorted(used) == sorted(batch)
    assert all(part.indices for parts in by_rank for part in parts)  # no model gets an empty batch
    if largest is not None:
        assert max(len(part.indices) for parts in by_rank for part in parts) <= largest


@given(st.integers(1, 60), SIZES, LARGEST, st.integers(0, 100))
def test_weighted_gradients_average_to_that_of_the_batch(
    length: int, ranks: int, largest: int | None, seed: int
) -> None:
    dice = np.random.default_rng(seed)
    inputs, targets, weights = dice.normal(size=(length, 3)), dice.normal(size=length), dice.normal(size=3)

    def gradient(indices: list[int]) -> np.ndarray:
        x = inputs[indices]
        return 2 * x.T @ (x @ weights - targets[indices]) / len(indices)

    passes = passes_for(length, ranks, largest)
    of_ranks = [
        sum(
            part.weight * gradient(part.indices)
            for part in parts_of(list(range(length)), rank, ranks, passes)
        )
        for rank in range(ranks)
    ]
    assert np.allclose(np.mean(of_ranks, axis=0), gradient(list(range(length))))


@given(st.integers(1, 100), SIZES, LARGEST, st.integers(0, 10_000))
def test_each_sample_is_used_once_through_any_changes_of_the_ranks(
    length: int, batch_size: int, largest: int | None, seed: int
) -> None:
    dice = random.Random(seed)
    batches = ElasticBatches(length, batch_size, largest, seed=seed)
    steps: list[set[int]] = []
    while batches.step < batches.steps:
        ranks = dice.randint(1, 7)
        together = [list(on(batches, rank, ranks).parts()) for rank in range(ranks)]
        for _ in range(dice.randint(1, 4)):
            if batches.step == batches.steps:
                break
            now = [[parts.pop(0) for _ in range(batches.passes)] for parts in together]
            steps.append({i for parts in now for part in parts if part.weight for i in part.indices})
            batches.record_step()
    order = [index for step in steps for index in step]
    assert sorted(order) == list(range(length))
    undisturbed = ElasticBatches(length, batch_size, seed=seed)
    assert steps == [set(part.indices) for part in undisturbed.parts()]


def test_the_last_step_of_an_epoch_can_be_left_out() -> None:
    assert ElasticBatches(10, 4).steps == 3
    assert ElasticBatches(10, 4, drop_last=True).steps == 2
    batches = ElasticBatches(10, 4, largest=2, shuffle=False)
    assert len(batches) == 6
    assert list(batches) == [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9]]


def test_an_epoch_begins_anew_and_has_an_order_of_its_own() -> None:
    batches = ElasticBatches(range(50), 10, seed=3)
    first = list(batches)
    batches.record_step()
    batches.set_epoch(0)
    assert batches.step == 1
    assert list(batches) == first[1:]
    batches.set_epoch(1)
    assert batches.step == 0
    assert list(batches) != first
    again = ElasticBatches(50, 10, seed=3)
    again.load_state_dict({"epoch": 0, "step": 1})
    assert list(again) == first[1:]
    assert again.state_dict() == {"epoch": 0, "step": 1}


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"batch_size": 2, "largest": 0}])
def test_sizes_are_positive(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is at least 1, not 0"):
        ElasticBatches(5, **bad)
    with pytest.raises(ValueError, match="samples is at least 1"):
        ElasticBatches([], 2)


def test_made_before_init_they_are_of_the_ranks_that_there_are_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare has all ready before it waits in init; then it gets the state of the others."""
    early, other = ElasticBatches(8, 4, largest=1), ElasticBatches(8, 4, largest=1)
    for name, value in (("is_initialized", True), ("rank", 1), ("size", 2)):
        monkeypatch.setattr(basics, name, lambda value=value: value)
    late = ElasticBatches(8, 4, largest=1)
    early.load_state_dict(other.state_dict())
    assert list(early.parts()) == list(late.parts())
    assert early.passes == late.passes == 2


def test_a_state_of_torch_tells_them_of_new_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they look like a data loader that has a state."""
    batches, scale = ElasticBatches(8, 4), RateScale()
    state = TorchState(batches=batches, scale=scale)
    told = []
    monkeypatch.setattr(batches, "reset", lambda: told.append("batches"))
    monkeypatch.setattr(scale, "reset", lambda: told.append("scale"))
    state.reset()
    assert told == ["batches", "scale"]
