"""Works: futures, timeouts, operations that nobody waits for, and what goes wrong in one operation."""

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from load import within
from process_groups import check, process_group

from horovod import _core
from horovod.common.exceptions import TensorMismatchError
from horovod.torch.distributed import CollectiveTimeoutError

LIMIT = 0.4


def asynchronous() -> None:
    with process_group() as (rank, size):
        total = sum(range(1, size + 1))
        tensors = [torch.full((n,), rank + 1.0) for n in (1, 10, 100_000)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        assert works[0].result() == [tensors[0]]
        for work, tensor in zip(reversed(works), reversed(tensors), strict=True):
            assert work.wait() and work.is_completed() and work.is_success()
            check(tensor, np.full(tensor.shape, total), "in the other order")
        assert works[0].wait()  # again
        strided = torch.full((4, 2), rank + 1.0)[:, 0]
        work = dist.all_reduce(strided, async_op=True)
        while not work.is_completed():
            time.sleep(0.001)
        check(strided, np.full(4, total), "polled")
        changed = [torch.full((4,), rank + 1.0)]
        work = dist.group.WORLD.allreduce(changed)
        changed.clear()  # the list is the program's, what is in it stays in use
        assert work.wait()
        check(work.result()[0], np.full(4, total), "a list that changes")


def futures() -> None:
    with process_group() as (rank, size):
        tensors = [torch.full((n,), rank + 1.0) for n in (1, 10, 100_000)]
        chained = [
            dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] / size)
            for tensor in tensors
        ]
        for future, tensor in zip(chained, tensors, strict=True):
            check(future.wait(), np.full(tensor.shape, sum(range(1, size + 1)) / size), "a future")
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        assert work.wait() and future.wait()[0].tolist() == [size] * 3
        assert work.get_future() is future
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
        assert work.get_future().wait()[0].tolist() == [size] * 3  # of one that is over
        parts = [[torch.empty(2) for _ in range(size)] for _ in range(2)]
        joint = dist.group.WORLD.allgather(parts, [torch.full((2,), float(rank)), torch.ones(2)])
        joint.get_future().wait()
        assert parts[0][size - 1].tolist() == [size - 1.0] * 2


def futures_that_wait() -> None:
    """What is chained to a future starts another operation, and waits for it, as hooks of DDP do. Each group
    has an order of its own.
    """
    with process_group() as (rank, size):
        groups = [dist.new_group() for _ in range(4)]

        def again(group: Any) -> Callable[[Any], Any]:
            def chained(done: Any) -> Any:
                (mine,) = done.value()
                return dist.all_reduce(mine, group=group, async_op=True).get_future().wait()[0]

            return chained

        for _ in range(20):
            works = [dist.all_reduce(torch.full((3,), rank + 1.0), group=g, async_op=True) for g in groups]
            for future in [work.get_future().then(again(g)) for work, g in zip(works, groups, strict=True)]:
                check(future.wait(), np.full(3, size * sum(range(1, size + 1))), "a future that waits")
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("hvd-futures") <= len(groups) + 2, names


def dropped() -> None:
    """Nobody waits: the operations are carried out all the same, and nothing is kept for ever."""
    with process_group() as (rank, size):
        kept = [torch.full((10,), rank + 1.0) for _ in range(200)]
        for tensor in kept:
            dist.all_reduce(tensor, async_op=True)
            dist.all_reduce(torch.ones(1000), async_op=True)
        gc.collect()
        dist.barrier()
        for tensor in kept:
            check(tensor, np.full(10, sum(range(1, size + 1))), "dropped")
        dist.barrier()
        assert not dist.group.WORLD._communicator.in_flight


def late(store: str) -> None:
    with process_group(store) as (rank, size):
        short = dist.new_group(timeout=timedelta(seconds=LIMIT))
        if rank == 0:
            for attempt in (
                lambda: dist.all_reduce(torch.ones(2), group=short),
                lambda: dist.all_reduce(torch.ones(2), group=short, async_op=True).wait(),
                lambda: dist.barrier(group=short, async_op=True).get_future().wait(),
            ):
                began = time.monotonic()
                with pytest.raises((CollectiveTimeoutError, RuntimeError), match=f"timeout of {LIMIT} s"):
                    attempt()
                assert LIMIT <= time.monotonic() - began < within(LIMIT + 1)
            work = dist.all_reduce(torch.ones(2), async_op=True)
            with pytest.raises(CollectiveTimeoutError, match=f"An allreduce on rank 0 of {size} .*0.2 s"):
                work.wait(timedelta(seconds=0.2))
            dist.distributed_c10d._get_default_store().set("go", "on")
            work.wait()  # it goes on
            return
        dist.distributed_c10d._get_default_store().wait(["go"])
        for _ in range(2):
            dist.all_reduce(torch.ones(2), group=short)
        dist.barrier(group=short)
        dist.all_reduce(torch.ones(2))


def at_odds() -> None:
    """Each rank gets the same error, and the next operation works."""
    with process_group() as (rank, size):
        with pytest.raises(TensorMismatchError, match="shape"):
            dist.all_reduce(torch.ones(2 + rank))
        work = dist.broadcast(torch.ones(2, dtype=torch.int32 if rank else torch.float32), 0, async_op=True)
        with pytest.raises(TensorMismatchError):
            work.wait()
        assert work.is_completed() and not work.is_success()
        assert isinstance(work.exception(), TensorMismatchError)
        with pytest.raises((RuntimeError, TensorMismatchError)):
            dist.all_reduce(torch.ones(2 + rank), async_op=True).get_future().wait()
        with pytest.raises(ValueError, match="has sent"):
            dist.all_to_all_single(torch.empty(3 * size), torch.ones(size), [3] * size, [1] * size)
        with pytest.raises(ValueError, match="does not go with"):
            dist.group.WORLD._allgather_base(torch.empty(3), torch.ones(2)).wait()
        with pytest.raises(ValueError, match="bitwise"):
            dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [size] * 2


def watched_barrier(store: str) -> None:
    with process_group(store) as (rank, size):
        group = dist.group.WORLD
        group.monitored_barrier(timedelta(seconds=5))
        if rank == size - 1:
            group.get_group_store().set("passed", "by")
            return
        absent = f"Rank {size - 1} failed to pass"
        with pytest.raises(CollectiveTimeoutError, match=absent):
            group.monitored_barrier(timedelta(seconds=0.3), wait_all_ranks=True)
        group.get_group_store().wait(["passed"])


def watched_barriers_of_two_jobs(path: str) -> None:
    """They meet in one store, as they do under torchrun."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    store = dist.FileStore(path, size)
    for job in range(2):
        dist.init_process_group("hvd", store=store, rank=rank, world_size=size)
        group = dist.group.WORLD
        if job == 0:
            group.monitored_barrier(timedelta(seconds=5))
        elif rank == 0:
            with pytest.raises(CollectiveTimeoutError, match="Rank 1 failed to pass"):
                group.monitored_barrier(timedelta(seconds=0.3))
        dist.barrier()
        dist.destroy_process_group()


def forgotten() -> None:
    """Works, tensors, and what knows of them, go while the core has yet to write to the tensors."""
    with process_group() as (rank, _):
        communicator = dist.group.WORLD._communicator
        for _round in range(5):
            dist.barrier()
            if rank > 0:
                time.sleep(0.1)
                if rank == 1:
                    dist.send(torch.ones(300_000), 0)
                dist.all_reduce(torch.ones(300_000))
                continue
            tensors = [torch.zeros(300_000), torch.ones(300_000)]
            known = [weakref.ref(tensor) for tensor in tensors]
            works = [dist.irecv(tensors[0], 1), dist.all_reduce(tensors[1], async_op=True)]
            handles = [work._handle for work in works]
            communicator.messages.clear()
            communicator.in_flight.clear()
            tensors.clear()
            works.clear()
            gc.collect()
            assert all(tensor() is not None for tensor in known)
            while handles:
                _core.wait(handles.pop(), 30.0)
            assert all(tensor() is None for tensor in known)  # nor are they kept for ever


PROGRAMS = [asynchronous, futures, futures_that_wait, dropped, forgotten, at_odds]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("np", [2, 4])
def test_works(run_ranks: Callable[..., Any], np: int, program: Callable[[], None]) -> None:
    run_ranks(np, program)


@pytest.mark.parametrize(
    "program", [late, watched_barrier, watched_barriers_of_two_jobs], ids=lambda program: program.__name__
)
def test_ranks_that_do_not_come(
    run_ranks: Callable[..., Any], tmp_path: Path, program: Callable[[str], None]
) -> None:
    run_ranks(2, program, [str(tmp_path / "store")])
