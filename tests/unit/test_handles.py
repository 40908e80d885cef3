"""Waiting for handles with a limit and from asyncio, and what becomes of handles that nobody waits for."""

import array
import asyncio
import gc
import threading
import time
import weakref

import pytest
import torch

import horovod.torch as hvd
from horovod.common import handles
from horovod.common.awaiting import CompletionWatch
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.torch.operations import ops

LIMIT = 1024  # of dropped handles before the first sweep


@pytest.fixture
def few(monkeypatch):
    """Few results of dropped handles are kept."""
    monkeypatch.setattr(handles, "_MOST_DROPPED", 200)


@pytest.fixture
def slow(core, monkeypatch):
    """Operations that are complete when ``slow.finish(handle)`` was called."""
    wait, complete = core.wait, set()

    def limited(handle, timeout=None):
        if handle in core.pending and handle not in complete:
            assert timeout is not None, "nobody would ever complete it"
            raise TimeoutError(f"not complete after {timeout} seconds")
        return wait(handle)

    core.wait = limited
    core.poll = lambda handle: handle not in core.pending or handle in complete
    core.finish = complete.add
    return core


def test_wait_with_a_limit(slow):
    handle = hvd.allreduce_async(torch.ones(2), name="slow")
    for limit in (0, 0.01, -1):
        with pytest.raises(TimeoutError):
            hvd.wait(handle, limit)
    with pytest.raises(TimeoutError):
        hvd.wait(handle, timeout=0.01)
    assert hvd.poll(handle) is False
    slow.finish(handle)
    assert hvd.wait(handle, 5).tolist() == [1, 1]
    assert hvd.wait(handle, 5) is None
    assert ops._handle_map == {}


def test_wait_without_a_limit(core):
    assert hvd.wait(hvd.allreduce_async(torch.ones(1))).tolist() == [1]
    assert hvd.wait(12345) is None


def test_limit_that_ends_when_the_operation_does(slow):
    """The operation becomes complete just after the core gave up: the handle must stay valid."""
    handle = hvd.allreduce_async_(torch.ones(1))
    wait = slow.wait

    def give_up(number, timeout=None):
        slow.finish(number)
        raise TimeoutError

    slow.wait = give_up
    with pytest.raises(TimeoutError):
        hvd.wait(handle, 0.1)
    slow.wait = wait
    assert hvd.synchronize(handle).tolist() == [1]


def test_limit_of_a_deferred_operation(core):
    gate = threading.Event()
    tensor = torch.ones(2)
    placement = ops.glue.place(tensor, hvd_result())
    placement.ready = gate.wait
    handle = ops.start(core.ALLREDUCE, "deferred", [placement])
    assert handle < 0
    with pytest.raises(TimeoutError, match=r"not ready after 0\.01 seconds"):
        hvd.wait(handle, 0.01)
    gate.set()
    assert hvd.wait(handle, 20) is tensor
    assert hvd.synchronize(handle) is None


def hvd_result():
    from horovod.common.tensor_glue import Result

    return Result.IN_PLACE


def test_awaited(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(2))
        asyncio.get_running_loop().call_later(0.02, slow.finish, handle)
        return await hvd.wait_async(handle)

    assert asyncio.run(program()).tolist() == [1, 1]


def test_awaited_together_in_any_order(slow):
    order = []

    async def one(handle):
        result = await hvd.wait_async(handle)
        order.append(handle)
        return result.item()

    async def program():
        handles = [hvd.allreduce_async(torch.tensor([float(number)])) for number in range(20)]
        loop = asyncio.get_running_loop()
        for position, handle in enumerate(reversed(handles)):
            loop.call_later(0.02 + 0.01 * position, slow.finish, handle)
        results = await asyncio.gather(*map(one, handles))
        return handles, results

    handles, results = asyncio.run(program())
    assert results == list(range(20))
    assert sorted(order) == handles
    assert order != handles


def test_event_loop_goes_on(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1))
        ticks = 0
        waiting = asyncio.ensure_future(hvd.wait_async(handle))
        while ticks < 50:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not waiting.done()
        slow.finish(handle)
        await waiting
        return ticks

    assert asyncio.run(program()) == 50


def test_cancelled_wait_leaves_the_handle(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hvd.wait_async(handle), 0.05)
        assert hvd.poll(handle) is False
        slow.finish(handle)
        return await hvd.wait_async(handle)

    assert asyncio.run(program()).tolist() == [1]


def test_failure_is_raised_from_the_await(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1), name="weights")
        slow.requests[-1].error = TensorMismatchError("'weights': the shapes differ")
        slow.finish(handle)
        with pytest.raises(TensorMismatchError, match="'weights'"):
            await hvd.wait_async(handle)
        return await hvd.wait_async(handle)

    assert asyncio.run(program()) is None


def test_complete_and_unknown_handles_need_no_thread(core):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1))
        core.progress()
        return await hvd.wait_async(handle), await hvd.wait_async(777)

    before = threading.active_count()
    result, unknown = asyncio.run(program())
    assert (result.tolist(), unknown) == ([1], None)
    assert threading.active_count() == before


def test_shutdown_is_told_to_who_awaits(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1))
        waiting = asyncio.ensure_future(hvd.wait_async(handle))
        await asyncio.sleep(0.01)
        end_all(slow)
        slow.finish(handle)
        with pytest.raises(HorovodInternalError, match="shut down"):
            await waiting

    asyncio.run(program())


def end_all(core):
    """What a shutdown does to operations in flight."""
    for request in core.pending.values():
        request.error, request.complete = HorovodInternalError("Horovod has been shut down."), True
    ops.reset()


def test_handles_of_a_former_job(core):
    """What was complete has its result, what was in flight its error; nothing is None."""
    finished = hvd.allreduce_async(torch.ones(2))
    core.progress()
    lost = [hvd.allreduce_async_(torch.ones(2)), hvd.grouped_allreduce_async([torch.ones(1)] * 2)]
    for request in core.requests[1:]:
        request.error, request.complete = HorovodInternalError("Horovod has been shut down."), True
    ops.reset()
    later = hvd.allreduce_async(torch.zeros(2))
    assert hvd.synchronize(finished).tolist() == [1, 1]
    for handle in lost:
        with pytest.raises(HorovodInternalError, match="shut down"):
            hvd.synchronize(handle)
    assert hvd.synchronize(later).tolist() == [0, 0]


def test_handles_of_a_parent_process(core):
    handle = hvd.allreduce_async(torch.ones(2))
    core.progress()
    ops.reset_in_child()
    for _ in range(2):
        with pytest.raises(HorovodInternalError, match=f"{int(handle)} belongs to the process .* forked"):
            hvd.synchronize(handle)


def test_loop_that_is_closed_early_does_no_harm(slow):
    async def program():
        handle = hvd.allreduce_async(torch.ones(1))
        asyncio.ensure_future(hvd.wait_async(handle))  # noqa: RUF006  # dropped on purpose
        await asyncio.sleep(0.01)
        return handle

    handle = asyncio.run(program())
    slow.finish(handle)
    assert hvd.synchronize(handle).tolist() == [1]

    async def another():
        handle = hvd.allreduce_async(torch.ones(1))
        asyncio.get_running_loop().call_later(0.01, slow.finish, handle)
        return await hvd.wait_async(handle)

    assert asyncio.run(another()).tolist() == [1]


def test_watch_ends_and_starts_again():
    watch = CompletionWatch()
    done = threading.Event()

    async def program():
        asyncio.get_running_loop().call_later(0.01, done.set)
        await watch.until(done.is_set)

    asyncio.run(program())
    thread = watch._thread
    assert thread.is_alive()
    watch.stop()
    thread.join(20)
    assert not thread.is_alive()
    asyncio.run(program())
    assert watch._thread is not thread
    watch.forget()
    assert watch._thread is None


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
        placement = ops.glue.place(torch.ones(1), hvd_result())
        placement.ready = lambda: None
        ops.start(core.ALLREDUCE, f"deferred {number}", [placement])
    limit = time.monotonic() + 20
    while any(not future.done() for future in list(ops._deferred._futures.values())):
        assert time.monotonic() < limit
        time.sleep(0.001)
    core.progress()
    ops.sweep()
    assert ops._handle_map == {}
    assert ops._deferred._futures == {}


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


def test_join_lets_deferred_submissions_go_first(core):
    gate = threading.Event()
    placement = ops.glue.place(torch.ones(1), hvd_result())
    placement.ready = gate.wait
    handle = ops.start(core.ALLREDUCE, "first", [placement])
    threading.Timer(0.05, gate.set).start()
    assert hvd.join() == 0
    assert [request.kind for request in core.requests] == [core.ALLREDUCE, core.JOIN]
    hvd.synchronize(handle)
