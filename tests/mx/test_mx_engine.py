"""The operations as part of MXNet's engine: they overlap, order themselves by what they read and write, and
never hold up the program.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_mxnet import mx

import horovod.mxnet as hvd
from horovod import _core
from horovod.mxnet import tensors

OPERATIONS = 50
SECONDS_LATE = 60.0  # at most
# All that waits for the content of an array, in C: asnumpy, asscalar, wait_to_read, waitall, ...
WAITS = ("MXNDArraySyncCopyToCPU", "MXNDArrayWaitToRead", "MXNDArrayWaitToWrite", "MXNDArrayWaitAll")


def array(values: Any) -> Any:
    """Of float32."""
    return mx.nd.array(values, dtype="float32")


def ranks_overlap(path: str) -> int:
    """Rank 1 comes when rank 0 has called everything and has seen it in flight; a call that waited for the
    other rank would take until rank 1 is tired of it. Returns how many operations were in flight.
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inputs = [array(np.full(1000, rank + number)) for number in range(OPERATIONS)]
    hvd.barrier()
    limit = time.monotonic() + SECONDS_LATE
    while rank == 1 and not os.path.exists(path) and time.monotonic() < limit:
        time.sleep(0.01)
    results = [hvd.allreduce(given, op=hvd.Sum) for given in inputs]
    doubled = [result * 2 for result in results]
    flying: list[str] = []
    if rank == 0:
        while len(flying) < OPERATIONS and time.monotonic() < limit:
            flying = _core.in_flight(0)
        assert time.monotonic() < limit, f"{len(flying)} in flight after {SECONDS_LATE} s"
        Path(path).touch()
    for number, (result, twice) in enumerate(zip(results, doubled, strict=True)):
        wanted = sum(range(size)) + size * number
        assert twice.asnumpy().tolist() == [2 * wanted] * 1000
        assert result.asnumpy()[0] == wanted
    return len(flying)


def test_operations_overlap_and_the_program_goes_on(run_ranks, tmp_path: Path) -> None:
    assert run_ranks(2, ranks_overlap, [str(tmp_path / "seen")], timeout=100)[0] == OPERATIONS


@contextlib.contextmanager
def without_waits() -> Iterator[None]:
    """Whatever waits for the content of an array fails meanwhile, in every thread."""
    library = mx.base._LIB

    def fail(*arguments: Any) -> None:
        raise AssertionError("waits for MXNet's engine")

    before = {name: getattr(library, name) for name in WAITS}
    for name in WAITS:
        setattr(library, name, fail)
    yield
    for name, function in before.items():
        setattr(library, name, function)


def everything(given: Any, size: int) -> list[Any]:
    """The results of all operations."""
    gathered = [hvd.allgather(given), *hvd.grouped_allgather([given, given])]
    scattered = [hvd.reducescatter(given), *hvd.grouped_reducescatter([given, given])]
    exchanged = [hvd.alltoall(given), hvd.alltoall(given, splits=[1] * size)[0]]
    reduced = [hvd.allreduce(given), *hvd.grouped_allreduce([given, given])]
    return [*gathered, *scattered, *exchanged, *reduced, hvd.broadcast(given, 0)]


def ranks_wait_for_nothing() -> int:
    """Returns how many results there are."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    given = array(np.arange(2.0 * size) + rank)
    given.attach_grad()
    with without_waits():
        with pytest.raises(AssertionError):
            given.asnumpy()
        with mx.autograd.record():
            results = everything(given, size)
            loss = sum((result.sum() for result in results), start=array([0.0]))
        loss.backward()
        kept = given.copy()
        hvd.allreduce_(kept, op=hvd.Sum)
        hvd.grouped_allreduce_([kept], op=hvd.Max)
        hvd.broadcast_(kept, 0)
        hvd.broadcast_parameters({"kept": kept})
        mean = hvd.metric.get_global_mean(kept)
        time.sleep(0.5)  # for the backward pass, which runs in a thread
    everybodys = [np.arange(2.0 * size) + each for each in range(size)]
    assert mean.asnumpy().tolist() == sum(everybodys).tolist()
    wanted = everything(array(everybodys[rank]), size)
    assert [one.asnumpy().tolist() for one in results] == [one.asnumpy().tolist() for one in wanted]
    assert np.isfinite(given.grad.asnumpy()).all()
    return len(results)


def test_no_operation_waits_for_an_array(run_ranks) -> None:
    assert run_ranks(2, ranks_wait_for_nothing) == [12, 12]


def ranks_chain() -> None:
    """Each operation needs the one before; nobody waits in between, and handles are dropped early."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    value, wanted = array(np.arange(6.0) + rank), np.arange(6.0) + rank
    everybodys = np.arange(6.0) * size + sum(range(size))
    for number in range(20):
        value = hvd.allreduce(value, op=hvd.Sum) / size
        wanted = everybodys / size if number == 0 else wanted
        hvd.allreduce_(value)
        value = value + 1
        wanted = wanted + 1
    assert np.allclose(value.asnumpy(), wanted)


def test_operations_order_themselves(run_ranks) -> None:
    run_ranks(2, ranks_chain)


def ranks_call_one_name_again() -> None:
    """Twenty arrays under one name, in flight together; the first is the last to be computed."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inputs = [array([rank + number]) for number in range(20)]
    inputs[0] = slow(inputs[0]) if rank == 0 else inputs[0]
    results = [hvd.allreduce(given, op=hvd.Sum, name="again") for given in inputs]
    wanted = [[size * number + sum(range(size))] for number in range(20)]
    assert [result.asnumpy().tolist() for result in results] == wanted
    # The other rank leaves: all end in an error.
    for result in [hvd.allreduce(given, name="alone") for given in inputs] if rank == 0 else []:
        with pytest.raises(mx.base.MXNetError):
            result.asnumpy()


def test_one_name_for_many(run_ranks) -> None:
    run_ranks(2, ranks_call_one_name_again)


def ranks_convolve() -> None:
    """Convolutions leave results and gradients in the layout of oneDNN, which is not the usual one."""
    hvd.init()
    size = hvd.size()
    mx.random.seed(3)  # all ranks compute the same
    images = mx.nd.random.normal(shape=(2, 16, 8, 8))
    weights, others = mx.nd.random.normal(shape=(32, 16, 3, 3)), mx.nd.ones((16, 32, 1, 1))
    weights.attach_grad()

    def convolved() -> Any:
        return mx.nd.Convolution(images, weights, kernel=(3, 3), num_filter=32, no_bias=True)

    with mx.autograd.record():
        result = convolved()
        loss = mx.nd.Convolution(result, others, kernel=(1, 1), num_filter=16, no_bias=True).square().sum()
    loss.backward()
    reduced = hvd.allreduce(result, op=hvd.Sum)
    gradient = hvd.allreduce(weights.grad, op=hvd.Sum)
    in_place = hvd.allreduce_(convolved(), op=hvd.Sum)
    assert np.allclose(reduced.asnumpy(), size * result.asnumpy())
    assert np.allclose(in_place.asnumpy(), size * result.asnumpy())
    assert np.allclose(gradient.asnumpy(), size * weights.grad.asnumpy())
    assert np.abs(gradient.asnumpy()).max() > 0


def test_arrays_in_the_layout_of_onednn(run_ranks) -> None:
    run_ranks(2, ranks_convolve)


def ranks_gather_what_does_not_fit() -> list[str]:
    """The calls themselves raise, before MXNet has an array that could only be read to learn of it."""
    hvd.init()
    rank = hvd.rank()
    of_type = mx.nd.ones((2, 3), dtype="float64" if rank else "float32")
    calls: list[Callable[[], Any]] = [
        lambda: hvd.allgather(mx.nd.ones((2, 1 + rank)), name="shape"),
        lambda: hvd.allgather(mx.nd.ones((2,) * (1 + rank)), name="dims"),
        lambda: hvd.allgather(of_type, name="type"),
        lambda: hvd.grouped_allgather([of_type] * (1 + rank), name="group"),
        lambda: hvd.alltoall(of_type, name="rows"),
    ]
    texts = []
    for call in calls:
        with pytest.raises(hvd.TensorMismatchError) as caught:
            call()
        texts.append(str(caught.value))
    assert hvd.allgather(mx.nd.ones((1 + rank, 3))).shape == (3, 3)
    return texts


def test_a_gather_that_does_not_fit_is_an_error_of_the_call(run_ranks) -> None:
    texts, others = run_ranks(2, ranks_gather_what_does_not_fit)
    assert texts == others
    assert "'shape'" in texts[0] and "rank 0: float32 [*, 1]; rank 1: float32 [*, 2]" in texts[0]
    assert "rank 0: float32 [*]; rank 1: float32 [*, 2]" in texts[1]
    assert "rank 0: float32 [*, 3]; rank 1: float64 [*, 3]" in texts[2]
    assert "rank 1: float64 [*, 3], float64 [*, 3]" in texts[3]
    assert "alltoall" in texts[4]


def ranks_share_memory() -> None:
    """Views of one array in one group, and one array twice: the engine orders by the memory."""
    hvd.init()
    size = hvd.size()
    whole = array(np.arange(8.0))
    hvd.grouped_allreduce_([whole[:2], whole[2:6], whole[6:]], op=hvd.Sum)
    assert whole.asnumpy().tolist() == (np.arange(8.0) * size).tolist()
    for one in hvd.grouped_allreduce([whole, whole, whole[3:5]], op=hvd.Max):
        assert one.asnumpy().max() in (7.0 * size, 4.0 * size)
    hvd.broadcast_(whole[4:], 0)
    assert hvd.allgather(whole[1:3]).shape == (2 * size,)


def test_views_of_one_array(run_ranks) -> None:
    run_ranks(2, ranks_share_memory)


def slow(value: Any) -> Any:
    """The same after some computing."""
    matrix = mx.nd.ones((700, 700))
    for _ in range(30):
        matrix = mx.nd.dot(matrix, matrix) / 700
    return value * matrix[0, 0]


def ranks_meet_behind_slow_inputs() -> int:
    """Operations called before a barrier come before it, although their inputs are not there yet."""
    hvd.init()
    mine = slow(array([hvd.rank() + 1.0])) if hvd.rank() == 0 else array([hvd.rank() + 1.0])
    reduced = hvd.allreduce(mine, op=hvd.Sum, name="before the barrier")
    hvd.barrier()
    assert reduced.asnumpy().tolist() == [3.0]
    mine = slow(array([hvd.rank() + 1.0])) if hvd.rank() == 0 else array([hvd.rank() + 1.0])
    reduced = hvd.allreduce(mine, op=hvd.Sum, name="before the join")
    if hvd.rank() == 0:
        last = hvd.join()
        assert reduced.asnumpy().tolist() == [3.0]
    else:
        assert reduced.asnumpy().tolist() == [3.0]  # and not 2, as if rank 0 had joined before
        assert hvd.allreduce(array([1.0]), op=hvd.Sum).asnumpy().tolist() == [1.0]
        last = hvd.join()
    assert hvd.allreduce(array([1.0]), op=hvd.Sum).asnumpy().tolist() == [2.0]  # counted anew
    return last


def test_barriers_come_after_what_was_called_before(run_ranks) -> None:
    assert run_ranks(2, ranks_meet_behind_slow_inputs) == [1, 1]


def ranks_call_from_threads() -> None:
    hvd.init()
    results: dict[str, Any] = {}

    def call(thread: int) -> None:
        for number in range(20):
            name = f"{thread}.{number}"
            results[name] = hvd.allreduce(array([thread + number]), op=hvd.Sum, name=name)

    threads = [threading.Thread(target=call, args=[thread]) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, result in results.items():
        assert result.asnumpy().tolist() == [hvd.size() * sum(map(int, name.split(".")))]


def test_threads_may_call(run_ranks) -> None:
    run_ranks(2, ranks_call_from_threads)


def ranks_start_again() -> None:
    for _ in range(3):
        hvd.init()
        results = [hvd.allreduce(array([1.0]), op=hvd.Sum) for _ in range(5)]
        hvd.shutdown()  # completes them
        assert [one.asnumpy().tolist() for one in results] == [[2.0]] * 5
        with pytest.raises(ValueError, match="initialized"):
            hvd.rank()


def test_shutdown_completes_what_was_called(run_ranks) -> None:
    run_ranks(2, ranks_start_again)


def ranks_leave(way: str) -> None:
    """Ends the program with operations in flight."""
    hvd.init()
    rank = hvd.rank()
    hvd.barrier()
    if way == "at once":
        for number in range(3):
            hvd.allreduce_(slow(array([1.0])), name=f"in flight {number}")
    elif way == "one is late":
        if rank == 1:
            time.sleep(1.0)
        result = hvd.allreduce(array([1.0]), op=hvd.Sum)
        if rank == 1:
            assert result.asnumpy().tolist() == [2.0]  # although rank 0 has long wanted to leave
    elif rank == 0:  # "the other never calls"
        hvd.allreduce_(array([1.0]), name="alone")


@pytest.mark.parametrize("way", ["at once", "one is late", "the other never calls"])
def test_programs_may_end_with_operations_in_flight(run_ranks, way: str) -> None:
    run_ranks(2, ranks_leave, [way], finalize=True)


def ranks_lose_one_in_training() -> str:
    """Rank 1 dies between two steps of gluon; rank 0 meets the error where it looks at a number."""
    hvd.init()
    layer = mx.gluon.nn.Dense(3, in_units=4)
    layer.initialize()
    trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd", {"learning_rate": 0.1})
    trainer.broadcast_parameters()

    def step() -> float:
        with mx.autograd.record():
            loss = layer(mx.nd.ones((2, 4))).square().sum()
        loss.backward()
        trainer.step(2)
        return float(loss.asscalar())

    with pytest.raises(mx.base.MXNetError) as caught:
        for number in range(1000):
            # Rank 0 may still be about to read a number of the third step.
            if hvd.rank() == 1 and number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            step()
    with pytest.raises(mx.base.MXNetError, match=r"'after it' was not completed: .*rank 1"):
        hvd.allreduce(array([1.0]), name="after it").asnumpy()
    return str(caught.value)


def test_a_lost_rank_is_an_error_where_a_number_is_read(run_ranks) -> None:
    result = run_ranks(2, ranks_lose_one_in_training, dies=[1], finalize=True)
    assert "rank 1" in result[0]


def ranks_use_another_device() -> None:
    """Shared memory of MXNet, taken for a device: arrays are copied to the host and back by the engine."""
    tensors._HOST_CONTEXTS.discard("cpu_shared")
    hvd.init()
    size, device = hvd.size(), mx.Context("cpu_shared", 0)
    given = array(np.arange(2.0 * size)).as_in_context(device)
    given.attach_grad()
    with mx.autograd.record():
        results = everything(given, size)
        loss = sum((result.sum() for result in results[1:]), start=results[0].sum())
    loss.backward()
    kept = hvd.allreduce_(given.copy(), op=hvd.Sum)
    assert kept.asnumpy().tolist() == (np.arange(2.0 * size) * size).tolist()
    assert {result.context for result in [*results, kept]} == {device}
    assert np.isfinite(given.grad.asnumpy()).all()
    plain = everything(array(np.arange(2.0 * size)), size)
    assert [one.asnumpy().tolist() for one in results] == [one.asnumpy().tolist() for one in plain]
    with pytest.raises(ValueError, match="one device"):
        hvd.grouped_allreduce([given, array([1.0])])


def test_arrays_on_a_device(run_ranks) -> None:
    run_ranks(2, ranks_use_another_device)
