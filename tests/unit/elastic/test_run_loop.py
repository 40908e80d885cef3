"""The loop around an elastic training function, with a state that only notes what is asked of it."""

from types import SimpleNamespace

import pytest

from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, TensorMismatchError
from horovod.elastic.run import run_fn


class State:
    """Raises what ``trouble`` has for a verb, once each."""

    def __init__(self, **trouble):
        self.calls = []
        self.trouble = {verb: list(errors) for verb, errors in trouble.items()}

    def _do(self, verb):
        self.calls.append(verb)
        if self.trouble.get(verb):
            raise self.trouble[verb].pop(0)

    def sync(self):
        self._do("sync")

    def restore(self):
        self._do("restore")

    def on_reset(self):
        self._do("on_reset")

    def train(self):
        self._do("train")

    def on_hosts_updated(self, timestamp, update_res):
        pass


@pytest.fixture(autouse=True)
def alone():
    basics.init()
    yield
    basics.shutdown()


def run(state):
    return run_fn(lambda given: given.train() or "done", reset=lambda: state.calls.append("reset"))(state)


def test_it_goes_on_from_the_last_commit_when_a_rank_is_lost():
    state = State(train=[HorovodInternalError("rank 1 is gone")])
    assert run(state) == "done"
    assert state.calls == ["sync", "train", "restore", "reset", "on_reset", "sync", "train"]


@pytest.mark.parametrize("skip_sync", [True, False])
def test_it_goes_on_from_where_it_is_when_hosts_have_changed(skip_sync):
    state = State(train=[HostsUpdatedInterrupt(skip_sync)])
    assert run(state) == "done"
    assert state.calls == ["sync", "train", "reset", "on_reset", *(["sync"] * (not skip_sync)), "train"]


def test_a_rank_may_be_lost_while_states_are_synchronized():
    state = State(sync=[HorovodInternalError("rank 2 is gone")])
    assert run(state) == "done"
    assert state.calls == ["sync", "restore", "reset", "on_reset", "sync", "train"]


def test_a_rank_may_be_lost_while_callbacks_of_a_reset_run():
    state = State(train=[HostsUpdatedInterrupt(True)], on_reset=[HorovodInternalError("rank 2 is gone")])
    assert run(state) == "done"
    again = ["restore", "reset", "on_reset", "sync", "train"]
    assert state.calls == ["sync", "train", "reset", "on_reset", *again]


@pytest.mark.parametrize("skip_sync", [True, False])
def test_it_goes_back_where_others_have_come_through_a_start_without_it(monkeypatch, skip_sync):
    """A rank was lost then, so they are at the last commit, and not where this one has stopped."""
    place = SimpleNamespace(has_newcomers=True)  # as a Membership tells of a start that was missed
    membership = SimpleNamespace(place=place, has_missed=True, watch=lambda tell: None, hold=lambda **_: None)
    monkeypatch.setattr("horovod.elastic.run.elastic_membership", lambda: membership)
    state = State(train=[HostsUpdatedInterrupt(skip_sync)])
    assert run(state) == "done"
    assert state.calls == ["sync", "train", "reset", "restore", "on_reset", "sync", "train"]


@pytest.mark.parametrize("error", [TensorMismatchError("shapes differ"), KeyError("lr")])
def test_what_would_happen_again_is_not_tried_again(error):
    state = State(train=[error])
    with pytest.raises(type(error)):
        run(state)
    assert state.calls == ["sync", "train"]
