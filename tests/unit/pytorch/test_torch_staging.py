"""Tensors of a device, with the calls to the device played: CPU tensors stand for the device's."""

import threading

import pytest
import torch

import horovod.torch as hvd
from horovod.common.collective.deferred import DeferredSubmitter
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.torch.devices import BlockingDevice
from horovod.torch.operations import ops
from horovod.torch.placements import on_devices


class PlayedDevice(BlockingDevice):
    """Copies to the host end when ``done`` is set."""

    non_blocking = True

    def __init__(self):
        self.done = threading.Event()
        self.buffers = []
        self.recorded = []

    def host_buffer(self, tensor):
        self.buffers.append(super().host_buffer(tensor))
        return self.buffers[-1]

    def record(self, device):
        self.recorded.append(device)
        return self.done.wait


@pytest.fixture
def device(core):
    core.size = 2
    return PlayedDevice()


def start(tensor, result, device, name="x", kind=0):
    purpose = Purpose(kind)
    return ops.start(purpose, name, on_devices([tensor], result, purpose, device))


def test_named_operation_is_submitted_when_the_copy_is_done(core, device):
    tensor = torch.ones(3)
    handle = start(tensor, Result.IN_PLACE, device)
    assert handle < 0
    assert core.requests == []
    assert hvd.poll(handle) is False
    device.done.set()
    assert hvd.synchronize(handle) is tensor
    assert tensor.tolist() == [2, 2, 2]
    assert core.requests[0].tensors[0][0] == device.buffers[0].data_ptr()
    assert core.requests[0].device == core.STAGED_DEVICE
    assert hvd.poll(handle) is True
    assert hvd.synchronize(handle) is None


def test_unnamed_operation_waits_in_line(core, device):
    device.done.set()
    handle = start(torch.ones(3), Result.LIKE_INPUT, device, name=None)
    assert handle >= 0
    assert hvd.synchronize(handle).tolist() == [2, 2, 2]


@pytest.mark.parametrize("tensor", [torch.ones(2, 3).t(), torch.ones(()), torch.ones(0)], ids=str)
def test_layouts(core, device, tensor):
    device.done.set()
    expected = 2 * tensor
    result = hvd.synchronize(start(tensor, Result.LIKE_INPUT, device))
    assert torch.equal(result, expected)
    assert not torch.equal(tensor, expected) or tensor.numel() == 0
    assert hvd.synchronize(start(tensor, Result.IN_PLACE, device)) is tensor
    assert torch.equal(tensor, expected)


def test_allgather(core, device):
    device.done.set()
    result = hvd.synchronize(start(torch.ones(2), Result.FROM_CORE, device, kind=core.ALLGATHER))
    assert result.tolist() == [1] * 4


def test_failed_submission_is_raised_by_synchronize(core, device):
    core.up = False
    handle = start(torch.ones(2), Result.IN_PLACE, device)
    device.done.set()
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None


def test_reset_ends_the_thread(core, device):
    device.done.set()
    start(torch.ones(2), Result.IN_PLACE, device)
    assert any(thread.name == "hvd-deferred" for thread in threading.enumerate())
    ops.reset()
    assert not any(thread.name == "hvd-deferred" for thread in threading.enumerate())
    assert hvd.synchronize(start(torch.ones(2), Result.IN_PLACE, device, "y")).tolist() == [2, 2]


def _submitted(submitter, submit, *ready):
    handle = submitter.new_handle()
    submitter.submit(handle, list(ready), submit)
    return handle


def test_submissions_keep_their_order():
    submitter, order, gate = DeferredSubmitter(), [], threading.Event()
    handles = [
        _submitted(submitter, lambda number=number: order.append(number) or number, gate.wait)
        for number in range(5)
    ]
    assert [submitter.poll(handle) for handle in handles] == [False] * 5
    gate.set()
    assert [submitter.resolve(handle) for handle in handles] == order == [0, 1, 2, 3, 4]
    submitter.stop()


class SlowQueue:
    """A queue into which something is put only after somebody has had time to stop the thread."""

    def __init__(self, queue, meanwhile):
        self._queue, self._meanwhile = queue, meanwhile
        self.get = queue.get

    def put(self, item):
        if item is not None:
            self._meanwhile()
        self._queue.put(item)


def test_what_is_submitted_during_a_stop_is_not_forgotten():
    submitter = DeferredSubmitter()
    stopping = threading.Thread(target=submitter.stop, daemon=True)

    def stop():
        stopping.start()
        stopping.join(0.2)

    submitter._queue = SlowQueue(submitter._queue, stop)
    handle = _submitted(submitter, lambda: 7)
    assert submitter.resolve(handle, timeout=5) == 7
    stopping.join()


def test_a_forked_child_starts_anew():
    submitter = DeferredSubmitter()
    _submitted(submitter, lambda: 1)
    thread, parents_queue = submitter._thread, submitter._queue
    submitter.forget()
    assert submitter.poll(-1) is True
    assert submitter.resolve(_submitted(submitter, lambda: 7)) == 7
    assert submitter._thread is not thread
    submitter.stop()
    parents_queue.put(None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda(core):
    core.size = 2
    tensor = torch.ones(1 << 20, device="cuda").mul_(3)
    assert hvd.allreduce(tensor, op=hvd.Sum, name="c").eq(6).all()
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor.eq(6).all()
    assert hvd.allgather(tensor).shape == (2 << 20,)
