"""ElasticIndices in one process, as attribute of a state."""

import warnings

import pytest

from horovod.common import basics
from horovod.elastic.handlers import HandlerState
from horovod.elastic.indices import ElasticIndices


@pytest.fixture
def place(monkeypatch):
    """Where this rank is; a list of rank and size."""
    where = [0, 2]
    monkeypatch.setattr(basics, "rank", lambda: where[0])
    monkeypatch.setattr(basics, "size", lambda: where[1])
    return where


def test_attributes(place):
    indices = ElasticIndices(11, shuffle=False)
    assert (indices.epoch, indices.rank, indices.num_replicas) == (0, 0, 2)
    assert (indices.num_samples, indices.total_size, len(indices)) == (6, 12, 6)
    assert list(indices) == indices.indices == [0, 2, 4, 6, 8, 10]
    assert indices.get_indices(1, 4) == [8, 10]
    indices.record_batch(0, 2)
    assert indices.processed_num == 4
    assert indices.processed_indices == {0, 1, 2, 3}
    assert indices.remaining_indices == list(range(11))
    assert list(indices) == [4, 6, 8, 10]  # from where the last batch has ended
    place[:] = [2, 3]
    indices.reset()
    assert indices.remaining_indices == list(range(4, 11))
    assert list(indices) == [6, 9, 5]  # of which the last one is repeated
    assert (indices.rank, indices.num_replicas, indices.num_samples, indices.total_size) == (2, 3, 3, 9)
    assert indices.processed_num == 4


def test_an_epoch_begins_once(place):
    indices = ElasticIndices(range(10), seed=3)
    indices.record_batch(0, 2)
    indices.set_epoch(0)  # as a loop does that goes on in the middle of it
    assert indices.processed_num == 4
    indices.set_epoch(1)
    assert indices.processed_num == 0
    assert sorted(indices.remaining_indices) == list(range(10))


def test_states_for_checkpoints(place):
    indices = ElasticIndices(10, seed=3)
    indices.set_epoch(4)
    indices.record_batch(0, 3)
    state = indices.state_dict()
    assert state == {"epoch": 4, "processed_num": 6}
    place[:] = [0, 1]
    other = ElasticIndices(10, seed=3)
    other.load_state_dict(state)
    assert other.processed_indices == indices.processed_indices
    assert set(other) == set(range(10)) - indices.processed_indices
    odd = sorted(indices.processed_indices)[1:]
    other.load_state_dict({"epoch": 4, "processed_indices": odd})
    assert other.processed_indices == set(odd)
    again = ElasticIndices(10, seed=3)
    again.load_state_dict(other.state_dict())
    assert again.processed_indices == set(odd)


def test_a_second_pass_over_the_same_epoch_warns(place):
    indices = ElasticIndices(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, _ in enumerate(indices):
            indices.record_batch(number, 1)
    with pytest.warns(UserWarning, match="set_epoch"):
        assert list(indices) == []
    indices.set_epoch(1)
    assert len(list(indices)) == 2


def test_they_are_saved_and_restored_in_place(place):
    state = HandlerState(lambda value, root=0: value, lambda: 0, indices=ElasticIndices(12), epoch=0)
    kept = state.indices
    kept.record_batch(0, 2)
    state.commit()
    before = kept.processed_indices
    kept.record_batch(1, 2)
    state.epoch = 5
    state.restore()
    assert state.indices is kept
    assert (kept.processed_indices, state.epoch) == (before, 0)
    kept.set_epoch(1)
    state.restore()
    assert (kept.epoch, kept.processed_indices) == (0, before)
    place[:] = [0, 3]
    state.on_reset()
    assert kept.num_replicas == 3
    state.sync()
    assert kept.processed_indices == before
    other = state.indices = ElasticIndices(5)
    other.record_batch(0, 1)
    state.restore()
    assert other.processed_num == 0
    state.indices = None  # now a value like any other
    state.commit()
    assert state.indices is None
