"""The state of elastic training without a framework: what is saved comes back, and who hears of updates."""

import threading

import numpy as np
import pytest

from horovod.common.collective.objects import UnpicklableObjectError
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.elastic.state import ObjectState, State
from horovod.elastic.updates import HostUpdateResult


def state_of(**values):
    return ObjectState(lambda value, root=0: value, lambda: 0, **values)


class Plain:
    """Of a user."""

    def __init__(self, content):
        self.content = content


def test_restore_brings_back_the_last_commit_deeply():
    shared = [1, 2]
    values = {
        "batch": 20,
        "nested": {"a": [1, {"b": (2, [3])}]},
        "one": shared,
        "same": shared,
        "array": np.arange(6.0).reshape(2, 3),
        "column": np.arange(6)[::2],
        "object": Plain({"x": np.ones(3)}),
        "function": lambda: 5,
    }
    state = state_of(**values)
    for committed in (False, True):
        if committed:
            state.batch, state.one = 21, [*state.one, 9]
            state.same = state.one
            state.array[0] = 7
            state.nested["a"][1]["b"][1].append(4)
            state.object.content["x"][1] = 5
            state.commit()
        for _ in range(2):  # what is restored may be changed, too
            state.batch = 99
            state.nested["a"][1]["b"][1].append(100)
            state.nested["new"] = 1
            state.one.append(100)
            state.array += 1
            state.column[:] = 0
            state.object.content["x"][:] = 0
            state.object.other = 1
            state.restore()
        assert state.batch == (21 if committed else 20)
        assert state.nested == {"a": [1, {"b": (2, [3, 4] if committed else [3])}]}
        assert state.one == ([1, 2, 9] if committed else [1, 2])
        assert state.one is state.same
        assert state.array[0].tolist() == ([7, 7, 7] if committed else [0, 1, 2])
        assert state.column.tolist() == [0, 2, 4]
        assert state.object.content["x"].tolist() == ([1, 5, 1] if committed else [1, 1, 1])
        assert not hasattr(state.object, "other")
        assert state.function() == 5


def test_memory_of_arrays_is_kept():
    state = state_of(array=np.zeros(1000))
    (before,) = state._snapshot._buffers
    state.array += 1
    state.commit()
    assert state._snapshot._buffers[0] is before
    state.array = np.zeros(2000)
    state.commit()
    state.restore()
    assert state.array.shape == (2000,)


@pytest.mark.parametrize(
    "make", [threading.Lock, lambda: (x for x in [1]), lambda: [1, {2: threading.Lock()}]]
)
def test_what_cannot_be_saved_is_named(make):
    with pytest.raises(UnpicklableObjectError, match="'loader'"):
        state_of(epoch=1, loader=make())
    state = state_of(epoch=1, loader=None)
    state.epoch, state.loader = 2, make()
    with pytest.raises(ValueError, match=r"'loader'.*cannot be saved"):
        state.commit()
    state.restore()
    assert (state.epoch, state.loader) == (1, None)  # nothing of the commit that failed


def test_names_that_are_taken():
    for name in ("save", "commit", "_snapshot"):
        with pytest.raises(ValueError, match=f"{name}.*taken"):
            state_of(**{name: 1})


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([], None),
        ([HostUpdateResult.no_update], None),
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.removed, HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.mixed], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([1, 2], False),
    ],
)
def test_updates(updates, skip_sync):
    state = state_of(epoch=0)
    for timestamp, update in enumerate(updates, 1):
        thread = threading.Thread(target=state.on_hosts_updated, args=(timestamp, update))
        thread.start()
        thread.join()
    if skip_sync is None:
        state.check_host_updates()
    else:
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.commit()
        assert caught.value.skip_sync is skip_sync
    state.check_host_updates()  # told once
    state.on_hosts_updated(len(updates), HostUpdateResult.added)  # the same one, heard late
    if updates:
        state.check_host_updates()


def test_the_numbers_of_updates():
    names = ("no_update", "removed", "added", "mixed")
    assert [int(getattr(HostUpdateResult, name)) for name in names] == [0, 1, 2, 3]


def test_what_was_heard_before_a_failure_is_old_after_it_and_what_came_later_is_not():
    state = state_of(epoch=0)
    state.on_hosts_updated(1, HostUpdateResult.removed)
    state.restore()
    state.on_reset()
    state.check_host_updates()
    state.on_hosts_updated(2, HostUpdateResult.removed)
    state.restore()
    state.on_hosts_updated(3, HostUpdateResult.added)  # perhaps too late for the ranks that meet now
    state.on_reset()
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_an_update_during_a_reset_is_not_lost():
    state = state_of(epoch=0)
    state.on_hosts_updated(1, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state.on_hosts_updated(2, HostUpdateResult.added)
    state.restore()  # as the others have gone back
    state.on_reset()
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_reset_callbacks_run_after_reset():
    seen = []

    class Mine(ObjectState):
        def reset(self):
            seen.append("reset")

    state = Mine(lambda value, root=0: value, lambda: 0)
    state.register_reset_callbacks([lambda: seen.append(1), lambda: seen.append(2)])
    state.register_reset_callbacks([lambda: seen.append(3)])
    state.on_reset()
    assert seen == ["reset", 1, 2, 3]


def test_sync_gives_what_the_object_is_now_and_saves_it():
    received = []

    def broadcast(value, root=0):
        received.append((value, root))
        return {"epoch": 7, "log": ["root"]}

    state = ObjectState(broadcast, lambda: 1, epoch=0, log=[])
    state.epoch = 3
    state.sync()
    assert received == [({"epoch": 3, "log": []}, 0)]
    assert (state.epoch, state.log) == (7, ["root"])
    state.epoch = 9
    state.log.append("lost")
    state.restore()
    assert (state.epoch, state.log) == (7, ["root"])


def test_a_state_of_ones_own():
    state = State(lambda value, root=0: value, lambda: 0)
    for verb in (state.save, state.restore, state.sync, state.commit):
        with pytest.raises(NotImplementedError):
            verb()
    state.reset()


def test_commits_are_counted():
    state = state_of(epoch=0)
    state.commit()
    state.commit()
    state.sync()
    state.commit()
    assert state._age == (1, 3)
