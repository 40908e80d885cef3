"""Tensors that travel from GPU to GPU, by a fake of NCCL: jobs of several processes, each with a fake GPU."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from fake_device import fake_device
from load import within

import horovod.torch as hvd
from horovod import _core
from horovod.bootstrap import libraries
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.torch.operations import ops
from horovod.torch.placements import on_devices

SUM, AVERAGE = hvd.Sum, hvd.Average


@pytest.fixture
def gpus(fake_gpu):
    """The environment of ranks with GPUs whose streams are slow in random ways."""
    return {"LD_LIBRARY_PATH": fake_gpu, "HOROVOD_NCCL_HOME": fake_gpu, "FAKE_GPU_DELAY_US": "300"}


def values(rank, *shape):
    """What a rank sends."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 100 * rank


def every_kind():
    """On a set of the ranks 0 and 2, and of all; by name and without. Compares with numpy."""
    hvd.init(process_sets="dynamic")
    gpu = fake_device()
    pair = hvd.add_process_set([0, 2])
    sets = [(0, list(range(hvd.size())))]
    if pair.included():
        sets.append((pair.process_set_id, [0, 2]))
    for step in range(6):
        name = f"step{step}" if step % 2 else None
        for number, members in sets:
            _check_reductions(gpu, name, number, members)
            _check_rows(gpu, name, number, members)
    calls = gpu.calls()
    assert "ncclAllReduce" in calls and "cuMemcpyDtoH" in calls
    hvd.shutdown()


def _check_reductions(gpu, name, number, members):
    sent = gpu.block(values(hvd.rank(), 5))
    total, mean = gpu.empty((5,), np.float32), gpu.empty((5,), np.float32)

    def named(kind):
        return name and f"{name}.{kind}.{number}"

    handles = [
        gpu.submit(_core.ALLREDUCE, named("sum"), [sent], [total], op=SUM, process_set=number),
        gpu.submit(_core.ALLREDUCE, named("mean"), [sent], [mean], op=AVERAGE, process_set=number),
    ]
    root = members[-1]
    taken = gpu.block(values(hvd.rank(), 3, 2))
    broadcast = {"root": root, "process_set": number}
    handles.append(gpu.submit(_core.BROADCAST, named("root"), [taken], [taken], **broadcast))
    for handle in handles:
        gpu.wait(handle)
    everybody = sum(values(rank, 5) for rank in members)
    np.testing.assert_allclose(gpu.array(total), everybody)
    np.testing.assert_allclose(gpu.array(mean), everybody / len(members), rtol=1e-6)
    np.testing.assert_array_equal(gpu.array(taken), values(root, 3, 2))


def _check_rows(gpu, name, number, members):
    place, size = members.index(hvd.rank()), len(members)

    def named(kind):
        return name and f"{name}.{kind}.{number}"

    rows = gpu.block(values(hvd.rank(), place + 1, 2))  # as many as its place says, and one
    dealt = gpu.block(values(hvd.rank(), size + 1, 2))
    counts = [place + 1] * size
    scattered = gpu.block(values(hvd.rank(), sum(counts), 2))
    outputs = [
        gpu.wait(handle)
        for handle in (
            gpu.submit(_core.ALLGATHER, named("gather"), [rows], [None], process_set=number),
            gpu.submit(_core.REDUCESCATTER, named("deal"), [dealt], [None], op=SUM, process_set=number),
            gpu.submit(_core.ALLTOALL, named("swap"), [scattered], [None], process_set=number, splits=counts),
        )
    ]
    gathered, reduced, received = (gpu.array(gpu.adopted(made[0])) for made in outputs)
    np.testing.assert_array_equal(
        gathered, np.concatenate([values(rank, other + 1, 2) for other, rank in enumerate(members)])
    )
    total = sum(values(rank, size + 1, 2) for rank in members)
    start, count = (0, 2) if place == 0 else (place + 1, 1)
    np.testing.assert_allclose(reduced, total[start : start + count])
    parts = [
        values(rank, (other + 1) * size, 2)[place * (other + 1) : (place + 1) * (other + 1)]
        for other, rank in enumerate(members)
    ]
    np.testing.assert_array_equal(received, np.concatenate(parts))
    assert list(memoryview(outputs[2][1].tobytes()).cast("q")) == [other + 1 for other in range(size)]


@pytest.mark.parametrize("wire", ["shm", "tcp"])
def test_every_kind_in_process_sets(run_ranks, gpus, wire):
    run_ranks(3, every_kind, env={**gpus, "HOROVOD_TRANSPORT": wire})


def a_rank_dies_while_others_need_its_data():
    """Rank 1 is killed while its GPU is busy, so that the operation of the others never ends by itself."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(1000, np.float32))
    gpu.wait(gpu.submit(_core.ALLREDUCE, "before", [block], [block]))
    gpu.synchronize()
    if hvd.rank() == 1:
        gpu.occupy(600)
    gpu.wait(gpu.submit(_core.ALLREDUCE, "in flight", [block], [block]))  # it is given to the GPU
    if hvd.rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    assert gpu.is_busy()
    start = time.monotonic()
    gpu.synchronize()
    seconds = time.monotonic() - start
    with pytest.raises(hvd.HorovodInternalError) as caught:
        gpu.wait(gpu.submit(_core.ALLREDUCE, "after", [block], [block]))
    return [seconds, str(caught.value)]


def test_a_rank_that_dies_sets_the_streams_of_the_others_free(run_ranks, gpus):
    results = run_ranks(3, a_rank_dies_while_others_need_its_data, env=gpus, dies=[1])
    for seconds, text in (results[0], results[2]):
        assert "rank 1" in text
        assert 0.1 < seconds < 0.3 + within(1.0)


def a_network_fails_between_live_ranks():
    """The GPUs of all ranks are stuck then, and the program waits for its own, outside of horovod."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(1000, np.float32))
    for name in ("first", "second"):
        gpu.wait(gpu.submit(_core.ALLREDUCE, name, [block], [block]))
    start = time.monotonic()
    gpu.synchronize()
    seconds = time.monotonic() - start
    with pytest.raises(hvd.HorovodInternalError) as caught:
        gpu.wait(gpu.submit(_core.ALLREDUCE, "after", [block], [block]))
    return [seconds, str(caught.value)]


def test_a_network_that_fails_sets_the_streams_of_all_free(run_ranks, gpus):
    results = run_ranks(3, a_network_fails_between_live_ranks, env={**gpus, "FAKE_NCCL_ASYNC_FAIL_AT": "2:1"})
    for seconds, text in results:
        assert seconds < within(1.5)
        assert (
            "rank 1 cannot go on: NCCL failed during allreduce of 'second' on GPU 0 in process set 0" in text
        )
        assert "remote process exited or there was a network error" in text


def a_gpu_is_busy():
    """That of rank 1, with something else."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(10, np.float32))
    if hvd.rank() == 1:
        gpu.occupy(4)
    gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block], op=SUM))
    result = gpu.array(block).tolist()
    hvd.shutdown()
    return result


def test_what_a_gpu_does_not_finish_is_reported(run_ranks, gpus, tmp_path):
    env = {**gpus, "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    assert run_ranks(2, a_gpu_is_busy, env=env) == [[2] * 10] * 2
    said = "".join(path.read_text() for path in tmp_path.rglob("*.out"))
    assert "rank 1's GPU has not reached the allreduce of 'x' on GPU 0 in process set 0" in said
    assert "rank 0's GPU has not finished the allreduce of 'x'" in said


def a_gpu_is_busy_for_too_long():
    """That of rank 1. Ends with what the next operation fails with."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(10, np.float32))
    if hvd.rank() == 1:
        gpu.occupy(4)
    gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block]))
    start = time.monotonic()
    if hvd.rank() == 0:
        gpu.synchronize()
    seconds = time.monotonic() - start
    time.sleep(max(0, 3 - seconds))
    with pytest.raises(hvd.HorovodInternalError) as caught:
        gpu.wait(gpu.submit(_core.ALLREDUCE, "after", [block], [block]))
    return [seconds, str(caught.value)]


def test_an_explicit_limit_ends_a_stall_on_a_gpu(run_ranks, gpus):
    env = {**gpus, "HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"}
    results = run_ranks(2, a_gpu_is_busy_for_too_long, env=env)
    for _, text in results:
        assert "rank 1's GPU has not reached the allreduce of 'x' on GPU 0 in process set 0" in text
    assert results[0][0] < within(2.5)


def a_stream_captures_a_graph():
    """That of rank 0, before the GPU of rank 1 comes to the operation."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(10, np.float32))
    hvd.barrier()
    if hvd.rank() == 1:
        gpu.occupy(1)
    handle = gpu.submit(_core.ALLREDUCE, "x", [block], [block], op=SUM)
    if hvd.rank() == 0:
        gpu.capture(True)
        with pytest.raises(TimeoutError, match=r"captures a graph, which cannot wait.*before the capture"):
            gpu.wait(handle)
        gpu.capture(False)
    gpu.wait(handle)
    return gpu.array(block).tolist()


def test_a_wait_within_a_capture_is_refused_and_the_operation_goes_on(run_ranks, gpus):
    assert run_ranks(2, a_stream_captures_a_graph, env=gpus) == [[2] * 10] * 2


def a_result_is_empty():
    """Of two ranks that deal out one row; it is on the GPU all the same."""
    hvd.init()
    gpu = fake_device()
    row = gpu.block(values(hvd.rank(), 1, 2))
    (dealt,) = gpu.wait(gpu.submit(_core.REDUCESCATTER, "deal", [row], [None], op=SUM))
    return gpu.adopted(dealt).shape


def test_a_result_without_elements_is_on_the_gpu(run_ranks, gpus):
    assert run_ranks(2, a_result_is_empty, env=gpus) == [[1, 2], [0, 2]]


def versions_differ():
    """Ends with what the first operation fails with."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(10, np.float32))
    with pytest.raises(hvd.HorovodInternalError) as caught:
        gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block]))
    return str(caught.value)


def test_ranks_with_different_versions_of_nccl_are_told(run_ranks, gpus):
    def with_an_older_one(rank):
        return {**gpus, "FAKE_NCCL_VERSION": "22602" if rank == 1 else "22703"}

    for text in run_ranks(2, versions_differ, env=with_an_older_one):
        assert "rank 1 has version 2.26.2 of NCCL, and rank 0 has 2.27.3" in text


def ranks_differ():
    """Ends with whether NCCL serves, and the result of a tensor that a GPU has, or would have."""
    hvd.init()
    serves = _core.gpu_serves(_core.ALLREDUCE, _core.DTYPES["float32"], SUM, 1.0, 1.0)
    purpose = Purpose(_core.ALLREDUCE, SUM)
    handle = ops.start(purpose, "staged", on_devices([torch.ones(3)], Result.LIKE_INPUT, purpose))
    return [serves, hvd.synchronize(handle).tolist()]


def test_one_rank_without_nccl_and_all_go_through_host_memory(run_ranks, gpus):
    def with_one_less(rank):
        return {**gpus, **({"HOROVOD_GPU_OPERATIONS": "host"} if rank == 1 else {})}

    assert run_ranks(3, ranks_differ, env=with_one_less) == [[False, [3, 3, 3]]] * 3


def test_all_ranks_with_nccl_use_it(run_ranks, gpus):
    assert [serves for serves, _ in run_ranks(2, ranks_differ, env=gpus)] == [True, True]


def by_two_libraries():
    """Ends with sums of a tensor on the GPU and of one on the host, and whether NCCL has made the first."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(3, np.float32))
    gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block], op=SUM))
    on_gpu = gpu.array(block).tolist()
    return [on_gpu, hvd.allreduce(torch.ones(3), op=SUM).tolist(), "ncclAllReduce" in gpu.calls()]


@pytest.mark.skipif(not libraries.installed("gloo"), reason="horovod was built without Gloo")
def test_a_library_for_the_host_leaves_tensors_on_gpus_to_nccl(run_ranks, gpus):
    results = run_ranks(2, by_two_libraries, env={**gpus, libraries.VARIABLE: "GLOO"})
    assert results == [[[2] * 3, [2] * 3, True]] * 2


def a_call_of_nccl_fails():
    """Ends with what the operation fails with."""
    hvd.init()
    gpu = fake_device()
    block = gpu.block(np.ones(10, np.float32))
    with pytest.raises(hvd.HorovodInternalError) as caught:
        for _ in range(2):  # the first is done for a rank whose GPU has all of it
            gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block]))
    return str(caught.value)


def test_a_call_of_nccl_that_fails_is_an_error_that_names_its_rank(run_ranks, gpus):
    for text in run_ranks(2, a_call_of_nccl_fails, env={**gpus, "FAKE_NCCL_FAIL_AT": "1:1"}):
        assert "rank 1: NCCL failed during allreduce of 'x' on GPU 0 in process set 0" in text


FLOATS_OF_8_BITS = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
SUMS_OF_8_BITS = [[3 * number for number in (0, 1, 2, 0.5)]] * 2  # by type; 3 ranks


def eight_bits():
    """Ends with what NCCL serves of a sum, an average and a broadcast, and the sums by the way that it
    leaves.
    """
    hvd.init()
    gpu, serves, sums = fake_device(), [], []
    for name, dtype in FLOATS_OF_8_BITS.items():
        number, tensor = _core.DTYPES[name], torch.tensor([0, 1, 2, 0.5]).to(dtype)
        asked = [(_core.ALLREDUCE, SUM), (_core.ALLREDUCE, AVERAGE), (_core.BROADCAST, SUM)]
        serves.append([_core.gpu_serves(kind, number, op, 1.0, 1.0) for kind, op in asked])
        if serves[-1][0]:
            block = gpu.block(tensor.view(torch.uint8).numpy())
            block.kind = name
            gpu.wait(gpu.submit(_core.ALLREDUCE, name, [block], [block], op=SUM))
            total = torch.from_numpy(gpu.array(block)).view(dtype)
        else:
            purpose = Purpose(_core.ALLREDUCE, SUM)
            total = hvd.synchronize(
                ops.start(purpose, name, on_devices([tensor], Result.LIKE_INPUT, purpose))
            )
        sums.append(total.float().tolist())
    return [serves, sums, "dtype=float8e4m3 op=sum" in gpu.calls()]


@pytest.mark.parametrize(
    ("settings", "sum_by_nccl"),
    [({}, True), ({"FAKE_NCCL_VERSION": "22304"}, False), ({"FAKE_GPU_CAPABILITY": "8"}, False)],
    ids=["now", "an older NCCL", "older GPUs"],
)
def test_floats_of_eight_bits_travel_by_nccl_where_it_reduces_them(run_ranks, gpus, settings, sum_by_nccl):
    expected = [[[sum_by_nccl, False, True]] * 2, SUMS_OF_8_BITS, sum_by_nccl]
    assert run_ranks(3, eight_bits, env={**gpus, **settings}) == [expected] * 3


def one_rank_has_an_older_gpu():
    """Ends with what the sum fails with."""
    hvd.init()
    gpu, number = fake_device(), _core.DTYPES["float8_e5m2"]
    with pytest.raises(hvd.TensorMismatchError) as caught:
        if _core.gpu_serves(_core.ALLREDUCE, number, SUM, 1.0, 1.0):
            block = gpu.block(np.ones(3, np.uint8))
            block.kind = "float8_e5m2"
            gpu.wait(gpu.submit(_core.ALLREDUCE, "x", [block], [block], op=SUM))
        else:
            tensor, purpose = torch.ones(3).to(torch.float8_e5m2), Purpose(_core.ALLREDUCE, SUM)
            hvd.synchronize(ops.start(purpose, "x", on_devices([tensor], Result.LIKE_INPUT, purpose)))
    return str(caught.value)


def test_ranks_of_which_one_cannot_reduce_eight_bits_on_its_gpu_are_told(run_ranks, gpus):
    def with_an_older_one(rank):
        return {**gpus, "FAKE_GPU_CAPABILITY": "8" if rank == 1 else "9"}

    first, second = run_ranks(2, one_rank_has_an_older_gpu, env=with_an_older_one)
    assert first == second and "by way of host memory" in first and "rank 1" in first, first


def a_start_is_refused():
    """Ends with why."""
    with pytest.raises(RuntimeError) as caught:
        hvd.init()
    return str(caught.value)


def test_nccl_that_is_asked_for_and_missing_somewhere_is_an_error_on_all(run_ranks, gpus):
    def asked(rank):
        return {**gpus, "HOROVOD_GPU_OPERATIONS": "host" if rank == 1 else "NCCL"}

    texts = run_ranks(2, a_start_is_refused, env=asked)
    assert texts[0] == texts[1]
    assert "rank 0 on localhost asks for HOROVOD_GPU_OPERATIONS=nccl" in texts[0]
    assert "rank 1 on localhost has no NCCL" in texts[0]
