"""What a program and its GPU do while a collective is under way, with stand-ins for CUDA and NCCL."""

import ctypes
import os
import signal
import time
import weakref

import numpy as np
import pytest
import torch
from fake_device import fake_device
from load import within

import horovod.torch as hvd
from horovod import _core
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.torch.devices import CudaDevice
from horovod.torch.operations import ops
from horovod.torch.placements import on_devices

LAYERS = 10
PURPOSE = Purpose(_core.ALLREDUCE, hvd.Sum)


@pytest.fixture
def gpus(fake_gpu):
    """The environment of ranks with GPUs on which each collective takes 1 ms of simulated time."""
    return {"LD_LIBRARY_PATH": fake_gpu, "HOROVOD_NCCL_HOME": fake_gpu, "FAKE_NCCL_US": "1000"}


class TorchGpu(CudaDevice):
    """A stand-in of a GPU as torch has it: tensors of the CPU lie in its memory, and there is one stream."""

    def __init__(self, gpu):
        self._gpu = gpu

    def is_capturing(self, device):
        return False

    def current_stream(self, device):
        return Stream(self._gpu.stream)

    def event(self, stream):
        return Event(self._gpu.event())


class Stream:
    """As torch.cuda.Stream."""

    def __init__(self, number):
        self.cuda_stream = number

    def __eq__(self, other):
        return self.cuda_stream == other.cuda_stream


class Event:
    """As torch.cuda.Event."""

    def __init__(self, number):
        self.cuda_event = number


def tensor_of(block):
    """The memory of a block, as a tensor."""
    memory = (ctypes.c_float * (block.nbytes // 4)).from_address(block.address)
    return torch.from_numpy(np.ctypeslib.as_array(memory))


def start(gpu, tensor, name):
    """As ``hvd.allreduce_async_``, of a sum."""
    return ops.start(PURPOSE, name, on_devices([tensor], Result.IN_PLACE, PURPOSE, TorchGpu(gpu)))


def a_step():
    """Each layer takes 1 ms. Ends with the time of the second step, and the sums."""
    hvd.init()
    gpu = fake_device()
    blocks = [gpu.block(np.full(5, layer, np.float32)) for layer in range(LAYERS)]
    for _ in range(2):
        began = gpu.simulated_time()
        handles = []
        for layer, block in enumerate(blocks):
            gpu.compute(1000)
            handles.append(start(gpu, tensor_of(block), f"layer{layer}"))
        for handle in handles:
            hvd.synchronize(handle)
        took = gpu.simulated_time() - began
        hvd.barrier()
    return [took, [gpu.array(block)[-1].item() for block in blocks]]


@pytest.mark.parametrize("fusion", ["0", "1000000"])
def test_communication_and_computation_overlap(run_ranks, gpus, fusion):
    results = run_ranks(2, a_step, env={**gpus, "HOROVOD_FUSION_THRESHOLD": fusion})
    assert results == [[11_000, [4 * layer for layer in range(LAYERS)]]] * 2


def nobody_waits():
    """Rank 1's GPU is late. Ends with whether the tensor lived until then, and how often it is left then."""
    hvd.init()
    gpu = fake_device()
    hvd.synchronize(start(gpu, tensor_of(gpu.block(np.ones(5, np.float32))), "first"))
    gpu.synchronize()
    hvd.barrier()
    block = gpu.block(np.ones(5, np.float32))
    if hvd.rank() == 1:
        gpu.occupy(2)
    tensor = tensor_of(block)
    lives = weakref.ref(tensor)
    handle = start(gpu, tensor, "dropped")
    del tensor
    number = int(handle)
    del handle
    time.sleep(0.5)
    ops.sweep()
    early = lives() is not None and not hvd.poll(number)
    limit = time.monotonic() + within(20)
    while not hvd.poll(number) and time.monotonic() < limit:
        time.sleep(0.01)
    return [early, hvd.synchronize(number).tolist()]


def test_the_tensors_of_a_handle_that_was_dropped_are_kept_until_the_gpu_is_done(run_ranks, gpus):
    assert run_ranks(2, nobody_waits, env=gpus) == [[True, [2] * 5]] * 2


def a_rank_dies_before_the_gpu_is_done():
    """Rank 1, whose GPU is busy. Ends with what ``synchronize`` says of what was given to the GPU."""
    hvd.init()
    gpu = fake_device()
    tensor = tensor_of(gpu.block(np.ones(5, np.float32)))
    hvd.synchronize(start(gpu, tensor, "before"))
    gpu.synchronize()
    if hvd.rank() == 1:
        gpu.occupy(600)
    handle = start(gpu, tensor, "in flight")
    _core.wait(handle)  # until the GPU has it
    if hvd.rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    limit = time.monotonic() + within(20)
    while not hvd.poll(handle) and time.monotonic() < limit:
        time.sleep(0.01)
    with pytest.raises(hvd.HorovodInternalError) as caught:
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None, "it is forgotten"
    return str(caught.value)


def test_what_the_gpu_could_not_finish_is_an_error_where_it_is_waited_for(run_ranks, gpus):
    results = run_ranks(3, a_rank_dies_before_the_gpu_is_done, env=gpus, dies=[1])
    assert "rank 1" in results[0] and "rank 1" in results[2]
