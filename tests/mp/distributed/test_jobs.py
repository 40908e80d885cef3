"""Process groups in the life of a program: starts and ends, beside ``hvd``, and the end of a rank."""

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import threads
import torch
import torch.distributed as dist
from load import within
from process_groups import process_group
from torch.distributed.device_mesh import init_device_mesh

import horovod.torch as hvd
from horovod.bootstrap import libraries
from horovod.common.exceptions import HorovodInternalError

VICTIM = 1


def started_twice(store: str) -> None:
    for attempt in range(3):
        with process_group(f"{store}{attempt}" if store else "") as (rank, size):
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [size] * 3
            os.environ.update(HOROVOD_RANK=str(rank), HOROVOD_SIZE=str(size)) if store else None
        assert not hvd.is_initialized()


def after_hvd() -> None:
    hvd.init()
    with process_group() as (rank, size):
        assert (rank, size) == (hvd.rank(), hvd.size())
        both(rank, size)
    assert hvd.is_initialized()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
    with process_group():  # again
        both(rank, size)


def before_hvd(store: str) -> None:
    with process_group(store) as (rank, size):
        hvd.init()  # the same job
        assert (rank, size) == (hvd.rank(), hvd.size())
        both(rank, size)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def both(rank: int, size: int) -> None:
    """Operations of both, which each rank mixes in another order: they do not meet each other's."""
    total = sum(range(1, size + 1))
    for _ in range(20):
        handles, works = [], []
        for turn in range(6):
            if (turn + rank) % 2:
                handles.append(hvd.allreduce_async(torch.full((4,), rank + 1.0), op=hvd.Sum))
            else:
                works.append(dist.all_reduce(torch.full((4,), rank + 1.0), async_op=True))
        assert all(hvd.synchronize(handle).tolist() == [total] * 4 for handle in handles)
        assert all(work.wait() and work.result()[0].tolist() == [total] * 4 for work in works)


def another_rank() -> None:
    hvd.init()
    size = hvd.size()
    with pytest.raises(ValueError, match=f"rank {(hvd.rank() + 1) % size} of {size}, but is rank"):
        dist.init_process_group("hvd", store=dist.HashStore(), rank=(hvd.rank() + 1) % size, world_size=size)
    assert hvd.is_initialized()


def with_a_group_more() -> None:
    with process_group() as (_rank, size):
        groups = [dist.new_group() for _ in range(20)]
        for group in groups:
            tensor = torch.ones(2)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [size] * 2
        for group in groups:
            dist.destroy_process_group(group)
        dist.barrier()


def with_a_rank_that_joins() -> None:
    """``hvd.join`` is of what the program does by ``hvd``: the group goes on without limits."""
    hvd.init()
    with process_group() as (rank, size):
        joining = threading.Thread(target=hvd.join)
        if rank == 0:
            joining.start()
            time.sleep(0.2)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [size] * 3
        if rank > 0:
            joining.start()
        joining.join()
        both(rank, size)


def parts() -> None:
    with process_group() as (rank, size):
        middle = dist.new_group([1, 2])
        if rank in (1, 2):
            tensor = torch.full((3,), float(rank))
            dist.all_reduce(tensor, group=middle)
            assert tensor.tolist() == [3.0] * 3
            dist.broadcast(tensor.mul_(rank), src=2, group=middle)
            assert tensor.tolist() == [6.0] * 3
            objects = [None, None]
            dist.all_gather_object(objects, rank, group=middle)
            assert objects == [1, 2] and dist.get_process_group_ranks(middle) == [1, 2]
        else:
            assert middle is dist.GroupMember.NON_GROUP_MEMBER
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("outer", "inner"))
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=mesh.get_group("inner"))
        assert tensor.item() == (1.0 if rank < 2 else 5.0)
        dist.all_reduce(tensor, group=mesh.get_group("outer"))
        assert tensor.item() == 6.0
        evens, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        dist.all_reduce(tensor, group=evens)
        assert tensor.item() == 12.0
        dist.destroy_process_group(evens)
        unsorted = dist.new_group([3, 0, 2], sort_ranks=False)
        if rank != 1:
            objects = [None] * 3
            dist.all_gather_object(objects, rank, group=unsorted)
            assert objects == [3, 0, 2] and dist.get_group_rank(unsorted, 3) == 0
            dist.broadcast(tensor.fill_(rank), src=3, group=unsorted)
            assert tensor.item() == 3
        dist.barrier()


def parts_by_themselves() -> None:
    """Of no group do others than its members know."""
    with process_group() as (rank, size):
        for pair in sorted(sorted((first, (first + 1) % size)) for first in range(size)):
            if rank in pair:
                for _ in range(5):
                    group = dist.new_group(pair, use_local_synchronization=True)
                    tensor = torch.tensor([rank + 1.0])
                    dist.all_reduce(tensor, group=group)
                    assert tensor.item() == sum(pair) + 2
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"rank 2 has not come within 0\.5 s"):
                dist.new_group([0, 2], timeout=timedelta(seconds=0.5), use_local_synchronization=True)
        dist.barrier()
        if rank in (0, 2):
            dist.all_reduce(torch.ones(1), group=dist.new_group([0, 2], use_local_synchronization=True))
        dist.barrier()


def part_beside_gloo(folder: str) -> None:
    """The default group is gloo's, and a group of ours has a part of the ranks of an earlier one."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    store = dist.FileStore(folder, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    for ranks in ([0, 1, 2, 3], [1, 3], [0, 2, 3]):
        group = dist.new_group(ranks, backend="hvd")
        if rank in ranks:
            tensor = torch.tensor([rank + 1.0])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(ranks) + len(ranks)
    dist.barrier()
    dist.destroy_process_group()


def killed(kind: str, store: str, mark: str) -> list[Any]:
    """When a survivor heard of it, and how."""
    with process_group(store) as (rank, size):
        tensor, out = torch.ones(200_000), torch.empty(200_000 * size)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(tensor),
            "async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
            "future": lambda: dist.all_reduce(tensor, async_op=True).get_future().wait(),
            "all_gather": lambda: dist.all_gather_into_tensor(out, tensor),
            "barrier": dist.barrier,
        }
        calls[kind]()
        if rank == VICTIM:
            time.sleep(0.2)
            Path(mark).write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        error: Exception | None = None
        try:
            calls[kind]()
        except RuntimeError as caught:
            error = caught
        assert error is not None and (isinstance(error, HorovodInternalError) or kind == "future")
        return [time.time(), str(error)]


@pytest.mark.parametrize("np", [2, 4])
def test_a_file_is_enough(run_ranks: Callable[..., Any], tmp_path: Path, np: int) -> None:
    run_ranks(np, started_twice, [str(tmp_path / "store")])


def test_ranks_of_horovodrun(run_ranks: Callable[..., Any]) -> None:
    run_ranks(2, started_twice, [""])


@pytest.mark.parametrize(
    "program",
    [after_hvd, another_rank, with_a_group_more, with_a_rank_that_joins],
    ids=lambda program: program.__name__,
)
def test_beside_hvd(run_ranks: Callable[..., Any], program: Callable[[], None]) -> None:
    run_ranks(3, program)


def test_parts_of_the_ranks(run_ranks: Callable[..., Any]) -> None:
    run_ranks(4, parts)


def beside_a_library() -> None:
    """Which would have a thread and connections for every group."""
    hvd.init()
    with process_group() as (_, size):
        groups = [dist.group.WORLD, dist.new_group([*range(size)])]
        for group in groups:
            dist.all_reduce(torch.ones(3), group=group)
        assert "hvd-gloo" not in threads.names()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
        assert "hvd-gloo" in threads.names()
    hvd.shutdown()


@pytest.mark.skipif(not libraries.installed("gloo"), reason="horovod was built without Gloo")
def test_groups_take_nothing_of_a_library(run_ranks: Callable[..., Any]) -> None:
    run_ranks(2, beside_a_library, env={libraries.VARIABLE: "GLOO"})


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_groups_made_by_their_members(
    run_ranks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setenv("HOROVOD_TRANSPORT", transport)
    run_ranks(4, parts_by_themselves)


def test_parts_of_the_job_beside_gloo(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(4, part_beside_gloo, [str(tmp_path / "store")])


def test_hvd_joins_the_job_of_a_process_group(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(3, before_hvd, [str(tmp_path / "store")])


@pytest.mark.parametrize("kind", ["all_reduce", "async", "future", "all_gather", "barrier"])
def test_survivors_name_a_killed_rank(run_ranks: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    heard = run_ranks(4, killed, [kind, str(tmp_path / "store"), str(mark)], dies=[VICTIM])
    died = float(mark.read_text())
    for rank, told in enumerate(heard):
        if rank != VICTIM:
            assert told[0] - died < within(1.0), told
            assert f"rank {VICTIM}" in told[1], told
