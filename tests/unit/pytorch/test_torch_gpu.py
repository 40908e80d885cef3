"""Tensors that travel from GPU to GPU, with the calls to the GPU played: CPU tensors stand for its own."""

import itertools
import threading

import fake_core
import pytest
import torch

import horovod.torch as hvd
from horovod.common.collective.tensor_glue import DTYPES
from horovod.torch import devices, tensors
from horovod.torch.operations import ops
from horovod.torch.placements import on_devices


class PlayedStream:
    """As torch's: the address of the driver's stream."""

    numbers = itertools.count(100)

    def __init__(self):
        self.cuda_stream = next(self.numbers)


class PlayedEvent:
    """As torch's: the address of the driver's event."""

    def __init__(self, stream):
        self.stream = stream
        self.cuda_event = next(PlayedStream.numbers)


class PlayedGpu(devices.CudaDevice):
    """All streams and events of one GPU."""

    non_blocking = False

    def __init__(self):
        self.current = PlayedStream()
        self.events, self.lent = [], []
        self.capturing = False

    def host_buffer(self, tensor):
        return devices.BlockingDevice.host_buffer(self, tensor)

    def record(self, device):
        return None

    def is_capturing(self, device):
        return self.capturing

    def current_stream(self, device):
        return self.current

    def event(self, stream):
        self.events.append(PlayedEvent(stream))
        return self.events[-1]

    def lend(self, tensor, stream):
        self.lent.append((tensor, stream))


@pytest.fixture
def outputs(core, monkeypatch):
    """What the core gives back, one for each tensor on the GPU."""
    outputs, wait = [], core.wait
    monkeypatch.setattr(core, "wait", lambda *arguments: outputs.extend(made := wait(*arguments)) or made)
    return outputs


@pytest.fixture
def gpu(core, monkeypatch):
    """All tensors are on a GPU, by which the job carries out everything that is not of int16."""
    core.size = 2
    core.on_gpu = lambda kind, dtype, *_: dtype != DTYPES["int16"]
    played = PlayedGpu()
    monkeypatch.setattr(ops, "_describe", lambda tensor: None)
    monkeypatch.setattr(ops.glue, "place", lambda *arguments: place_group([arguments[0]], *arguments[1:])[0])

    def place_group(members, result, purpose):
        for tensor in members:
            tensors.check(tensor, result)
        return on_devices(members, result, purpose, played)

    monkeypatch.setattr(ops.glue, "place_group", place_group)
    return played


def test_the_core_gets_addresses_of_the_device_its_stream_and_the_event(core, gpu, outputs):
    tensor = torch.ones(3)
    handle = hvd.allreduce_async_(tensor, name="x", op=hvd.Sum)
    (request,) = core.requests
    assert handle >= 0, "named operations are not deferred either"
    assert request.tensors[0][:2] == (tensor.data_ptr(), tensor.data_ptr())
    assert (request.device, request.stream) == (0, gpu.current.cuda_stream)
    assert [event.cuda_event for event in gpu.events] == [request.ready_event]
    assert gpu.events[0].stream is gpu.current
    assert hvd.synchronize(handle) is tensor
    assert tensor.tolist() == [2, 2, 2]
    assert [output.followers for output in outputs] == [[gpu.current.cuda_stream]] and gpu.lent == []
    assert not any(thread.name == "hvd-deferred" for thread in threading.enumerate())


def test_a_group_has_one_event(core, gpu):
    members = [torch.ones(2), torch.ones(2, 3).t()]
    results = hvd.grouped_allreduce(members, op=hvd.Sum)
    assert [result.tolist() for result in results] == [[2, 2], [[2, 2]] * 3]
    assert len(gpu.events) == 1
    assert core.requests[0].ready_event == gpu.events[0].cuda_event


def test_the_event_is_behind_those_who_had_the_memory_of_the_result_before(core, gpu, monkeypatch):
    order, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **more: order.append("memory") or empty(*a, **more))
    monkeypatch.setattr(gpu, "event", lambda stream: order.append("event") or PlayedEvent(stream))
    hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum)
    assert order == ["memory", "memory", "event"]


@pytest.mark.parametrize("tensor", [torch.ones(2, 3).t(), torch.ones(()), torch.ones(0)], ids=str)
def test_layouts(core, gpu, tensor):
    expected = 2 * tensor
    result = hvd.allreduce(tensor, op=hvd.Sum)
    assert torch.equal(result, expected) and result is not tensor
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor, expected)
    assert {request.device for request in core.requests} == {0}


def test_negated_views(core, gpu):
    real = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    assert real.is_neg()
    assert hvd.allreduce(real, op=hvd.Sum).tolist() == [-2, -2, -2]


def test_gathered_rows_come_in_memory_of_torch(core, gpu, outputs):
    assert hvd.allgather(torch.ones(2)).tolist() == [1] * 4
    received, counts = hvd.alltoall(torch.arange(4), splits=torch.tensor([1, 3]))
    assert received.tolist() == [0, 0] and counts.tolist() == [1, 1]
    assert hvd.reducescatter(torch.ones(4), op=hvd.Sum).tolist() == [2, 2]
    assert [output.device for output in outputs] == [0, 0, core.HOST_DEVICE, 0]
    followers = [output.followers for output in outputs if output.device == 0]
    assert followers == [[gpu.current.cuda_stream]] * 3
    assert received.data_ptr() != outputs[1].tensor.data_ptr()


@pytest.mark.parametrize("stride", [1, 2])
def test_another_stream_that_takes_the_result_waits(core, gpu, outputs, stride):
    tensor = torch.as_strided(torch.ones(8), (4,), (stride,))
    handles = [
        hvd.allreduce_async(tensor, op=hvd.Sum),
        hvd.allreduce_async_(tensor, op=hvd.Sum),
        hvd.allgather_async(tensor),
        hvd.grouped_allreduce_async([tensor, tensor], op=hvd.Sum),
    ]
    gpu.current = PlayedStream()
    results = [hvd.synchronize(handle) for handle in handles]
    assert [output.followers for output in outputs] == [[gpu.current.cuda_stream]] * 5
    assert all(stream is gpu.current for _, stream in gpu.lent)
    lent = [tensor for tensor, _ in gpu.lent]
    assert any(tensor is results[0] for tensor in lent)
    assert all(any(tensor is result for tensor in lent) for result in results[3])
    assert not any(tensor is results[2] for tensor in lent), "it was made by the stream that is current now"


def test_no_stream_waits_before_somebody_asks_for_the_result(core, gpu, outputs):
    handles = [hvd.allreduce_async_(torch.ones(2), op=hvd.Sum) for _ in range(2)]
    assert hvd.synchronize(handles[1]).tolist() == [2, 2]
    assert [output.followers for output in outputs] == [[gpu.current.cuda_stream]]
    hvd.synchronize(handles[0])
    assert len(outputs) == 2


def test_memory_and_event_live_until_the_operation_is_complete(core, gpu):
    handle = hvd.allreduce_async(torch.ones(2, 3).t(), op=hvd.Sum)  # of which only the copy is sent
    _finish, (placement,), _size = ops._handle_map[handle]
    source, target, work = placement._kept
    assert source.data_ptr() == core.requests[0].tensors[0][0]
    assert target.data_ptr() == core.requests[0].tensors[0][1]
    assert work._ready is gpu.events[0]
    hvd.synchronize(handle)
    assert handle not in ops._handle_map


def test_what_a_gpu_cannot_do_is_staged_the_whole_group_at_once(core, gpu):
    members = [torch.ones(2), torch.ones(2, dtype=torch.int16)]
    assert [result.tolist() for result in hvd.grouped_allreduce(members, op=hvd.Sum)] == [[2, 2], [2, 2]]
    assert hvd.allreduce(members[0], op=hvd.Sum).tolist() == [2, 2]
    assert [request.device for request in core.requests] == [core.STAGED_DEVICE, 0]
    assert (core.requests[0].stream, core.requests[0].ready_event) == (0, 0)


def test_the_core_is_asked_for_the_operation_as_it_will_be_submitted(core, gpu):
    asked = []
    core.on_gpu = lambda *question: asked.append(question) or True
    hvd.allreduce(torch.ones(2), op=hvd.Min, prescale_factor=2.0, postscale_factor=0.5)
    hvd.broadcast(torch.ones(2, dtype=torch.int8), 1)
    hvd.reducescatter(torch.ones(2), op=hvd.Average, postscale_factor=3.0)
    submitted = [
        (request.kind, request.tensors[0][2], request.op, request.prescale, request.postscale)
        for request in core.requests
    ]
    assert asked == submitted
    assert asked[0] == (core.ALLREDUCE, DTYPES["float32"], hvd.Min, 2.0, 0.5)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "staged"])
def test_a_stream_that_captures_a_graph_is_refused_before_anything_is_sent(core, gpu, direct):
    core.on_gpu = lambda *_: direct
    gpu.capturing = True
    for start in (
        lambda: hvd.allreduce(torch.ones(2), name="x"),
        lambda: hvd.grouped_allreduce_([torch.ones(2)] * 2),
        lambda: hvd.allgather(torch.ones(2)),
    ):
        with pytest.raises(ValueError, match=r"captures a graph.*no_sync.*graph\.replay"):
            start()
    assert core.requests == []


def test_a_capture_that_cannot_wait_for_an_operation_leaves_its_handle(core, gpu, outputs, monkeypatch):
    tensor = torch.ones(2)
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
    follow = fake_core.Output.follow
    monkeypatch.setattr(fake_core.Output, "follow", refuse)
    with pytest.raises(TimeoutError, match="captures a graph"):
        hvd.synchronize(handle)
    monkeypatch.setattr(fake_core.Output, "follow", follow)
    assert hvd.synchronize(handle) is tensor


def refuse(output, stream):
    """As the core does where the stream captures a graph."""
    raise TimeoutError("the current stream captures a graph")


def test_a_job_without_nccl_stages_everything(core, gpu):
    core.on_gpu = None
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
    assert core.requests[0].device == core.STAGED_DEVICE


@pytest.mark.parametrize("groups", [None, 1])
def test_a_training_goes_on_the_gpu(core, gpu, monkeypatch, groups):
    monkeypatch.setattr("horovod.torch.operations.ops.glue.describe", lambda tensor: None, raising=False)
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Sum, groups=groups
    )
    before = len(core.requests)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert [request.device for request in core.requests[before:]] == [0] * (groups or 2)
    assert model.bias.grad.tolist() == [core.size]
    assert model.weight.grad.tolist() == [[core.size] * 2]


def test_tensors_of_the_cpu_ask_nothing(core):
    core.on_gpu = lambda *_: pytest.fail("asked")
    assert hvd.allreduce(torch.ones(2)).tolist() == [1, 1]
    assert hvd.allgather(torch.ones(2, 2).t()).tolist() == [[1, 1], [1, 1]]
    assert [request.device for request in core.requests] == [core.HOST_DEVICE] * 2
