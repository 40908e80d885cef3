"""Waiting for handles: with a limit, from asyncio, and after the job that they belong to."""

import asyncio
import threading

import pytest
import torch

import horovod.torch as hvd
from horovod import _core
from horovod.common.collective.awaiting import CompletionWatch
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.torch.operations import ops

ALLREDUCE = Purpose(_core.ALLREDUCE)


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
    placement = ops.glue.place(tensor, Result.IN_PLACE, ALLREDUCE)
    placement.ready = gate.wait
    handle = ops.start(ALLREDUCE, "deferred", [placement])
    assert handle < 0
    with pytest.raises(TimeoutError, match=r"not ready after 0\.01 seconds"):
        hvd.wait(handle, 0.01)
    gate.set()
    assert hvd.wait(handle, 20) is tensor
    assert hvd.synchronize(handle) is None


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

    before = set(threading.enumerate())  # of other tests, whose threads may end at any time
    result, unknown = asyncio.run(program())
    assert (result.tolist(), unknown) == ([1], None)
    assert set(threading.enumerate()) <= before


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


def test_join_lets_deferred_submissions_go_first(core):
    gate = threading.Event()
    placement = ops.glue.place(torch.ones(1), Result.IN_PLACE, ALLREDUCE)
    placement.ready = gate.wait
    handle = ops.start(ALLREDUCE, "first", [placement])
    threading.Timer(0.05, gate.set).start()
    assert hvd.join() == 0
    assert [request.kind for request in core.requests] == [core.ALLREDUCE, core.JOIN]
    hvd.synchronize(handle)
