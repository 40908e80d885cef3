"""What becomes of handles that nobody waits for, and of those that are kept as plain numbers."""

import array
import contextlib
import gc
import threading
import time
import weakref
from collections import deque
from concurrent.futures import wait

import pytest
import torch

import horovod.torch as hvd
from horovod import _core
from horovod.common.collective import handles
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.torch.operations import ops

ALLREDUCE = Purpose(_core.ALLREDUCE)

LIMIT = 1024  # of dropped handles before the first sweep


@pytest.fixture(autouse=True)
def own_losses(monkeypatch):
    """What is known of lost results is this test's own."""
    monkeypatch.setattr(ops, "_lost", {})
    monkeypatch.setattr(ops, "_lost_to", -1)
    monkeypatch.setattr(ops, "_lost_down_to", 0)


@pytest.fixture
def few(monkeypatch):
    """Few results of dropped handles are kept."""
    monkeypatch.setattr(handles, "_MOST_DROPPED", 200)


@pytest.mark.parametrize("count", [1500, 5000])
def test_handles_kept_as_plain_numbers(core, count):
    numbers = array.array("q")
    for number in range(count):
        numbers.append(hvd.allreduce_async(torch.tensor([float(number)])))
        core.progress()
    gc.collect()
    assert [hvd.synchronize(number).item() for number in numbers] == list(range(count))
    assert ops._handle_map == {}


def test_dropped_results_are_released_and_say_so(core, few):
    tensors, numbers = [], []
    with pytest.warns(RuntimeWarning, match="nobody has waited for"):
        for _ in range(5000):
            tensor = torch.ones(3)
            tensors.append(weakref.ref(tensor))
            numbers.append(int(hvd.allreduce_async_(tensor)))
            core.progress()
            del tensor
    gc.collect()
    assert len(ops._handle_map) <= LIMIT + 1
    assert sum(alive() is not None for alive in tensors) <= LIMIT + 1
    assert len(core.pending) <= LIMIT + 1
    with pytest.raises(HorovodInternalError, match=f"operation {numbers[0]} was released.*Keep the handles"):
        hvd.synchronize(numbers[0])
    assert hvd.synchronize(numbers[-1]).tolist() == [1, 1, 1]
    assert hvd.synchronize(numbers[-1]) is None


def progressed(core, handle):
    core.progress()
    return int(handle)


def test_released_handles_are_not_listed_for_ever(core, few, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_LOST", 100)
    with pytest.warns(RuntimeWarning):
        numbers = [progressed(core, hvd.allreduce_async_(torch.ones(1))) for _ in range(3000)]
    assert len(ops._lost) == 100
    for number in (numbers[0], numbers[1000]):
        with pytest.raises(HorovodInternalError, match="was released"):
            hvd.synchronize(number)


def test_large_results_of_dropped_handles(core, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED_BYTES", 4000)
    with pytest.warns(RuntimeWarning):
        for _ in range(1100):
            hvd.allreduce_async(torch.ones(10))
            core.progress()
    assert len(ops._handle_map) <= 100 + 1100 - LIMIT


@pytest.mark.parametrize("form", ["allreduce_async", "grouped_allreduce_async_", "allgather_async"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropped_handles_of_every_way_to_start(core, few, form):
    tensor = [torch.ones(1)] if "grouped" in form else torch.ones(1)
    for _ in range(3000):
        getattr(hvd, form)(tensor)
        core.progress()
    assert len(ops._handle_map) <= LIMIT + 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropped_operation_in_place_is_still_carried_out(core, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED", 0)
    core.size = 2
    columns = [torch.ones(2, 2) for _ in range(300)]
    for column in columns:
        hvd.allreduce_async_(column[:, 0], op=hvd.Sum)  # comes back through a contiguous copy
        core.progress()
    ops.sweep()
    assert all(column.tolist() == [[2, 1], [2, 1]] for column in columns)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_held_handles_and_unfinished_operations_are_kept(slow, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED", 0)
    held = [hvd.allreduce_async(torch.tensor([float(number)])) for number in range(200)]
    unfinished = {hvd.allreduce_async(torch.ones(1)) + 0 for _ in range(200)}
    for handle in held:
        slow.finish(handle)
    ops.sweep()
    assert unfinished | set(held) <= ops._handle_map.keys()
    assert [hvd.synchronize(handle).item() for handle in held] == list(range(200))
    for handle in unfinished:
        slow.finish(handle)
    ops.sweep()
    assert ops._handle_map == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_failed_operation_that_was_dropped(core, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED", 0)
    for number in range(300):
        hvd.allreduce_async(torch.ones(1))
        core.requests[number].error = TensorMismatchError("nobody is told")
        core.progress()
    ops.sweep()
    assert ops._handle_map == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropped_deferred_handles(core, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED", 0)
    for number in range(200):
        placement = ops.glue.place(torch.ones(1), Result.IN_PLACE, ALLREDUCE)
        placement.ready = lambda: None
        ops.start(ALLREDUCE, f"deferred {number}", [placement])
    limit = time.monotonic() + 20
    while any(not future.done() for future in list(ops._deferred._futures.values())):
        assert time.monotonic() < limit
        time.sleep(0.001)
    core.progress()
    ops.sweep()
    assert ops._handle_map == {}
    assert ops._deferred._futures == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_deferred_handles_whose_loss_is_no_longer_listed_are_errors(core, monkeypatch):
    monkeypatch.setattr(handles, "_MOST_DROPPED", 0)
    monkeypatch.setattr(handles, "_MOST_LOST", 3)
    numbers = []
    for number in range(10):
        placement = ops.glue.place(torch.ones(1), Result.IN_PLACE, ALLREDUCE)
        placement.ready = lambda: None
        numbers.append(ops.start(ALLREDUCE, f"deferred {number}", [placement]) + 0)
    wait([ops._deferred._futures[number] for number in numbers])
    core.progress()
    ops.sweep()
    for number in numbers:
        with pytest.raises(HorovodInternalError, match=r"was released|was waited for already"):
            hvd.synchronize(number)


def test_sweeping_is_rare(core, monkeypatch):
    sweeps = []
    sweep = ops.sweep
    monkeypatch.setattr(ops, "sweep", lambda: sweeps.append(1) or sweep())
    for _ in range(3):
        for handle in [hvd.allreduce_async_(torch.ones(1)) for _ in range(2000)]:
            hvd.synchronize(handle)
    assert not sweeps
    for _ in range(9000):
        hvd.allreduce_async_(torch.ones(1))
    assert len(sweeps) == 4


def test_a_handle_is_a_number_that_the_garbage_collector_does_not_count():
    entries, dropped = {7: None, -3: None}, deque()
    make = _core.handle_type(entries, dropped)
    other, unused = _core.handle_type({8: None}, deque()), gc.get_count()[0]
    kept = [make(7) for _ in range(100)]
    assert gc.get_count()[0] <= unused + 10 and not gc.is_tracked(kept[0])
    assert all(isinstance(handle, int) and handle == 7 and hash(handle) == 7 for handle in kept)
    assert make(8) + other(7) == 15 and not dropped  # neither is a key there
    kept.clear()
    assert list(dropped) == [7] * 100 and {type(number) for number in dropped} == {int}

    def fail():
        handle = make(-3)
        raise KeyError(str(handle))

    dropped.clear()
    with contextlib.suppress(KeyError):
        fail()
    thread = threading.Thread(target=lambda: make(7) and None)
    thread.start()
    thread.join()
    assert list(dropped) == [-3, 7]
