"""A rank that is gone: a monitored barrier ends at once, and the others form a group again."""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from load import within
from process_groups import interrupted_after, process_group

from horovod.common.exceptions import HorovodInternalError

PATIENCE = timedelta(seconds=40)


def die() -> None:
    time.sleep(within(0.4))  # the others are out of what came before, which they may have ended later
    os.kill(os.getpid(), signal.SIGKILL)


def watched(store: str, victim: int) -> float:
    """How long the barrier has gone on."""
    with process_group(store) as (rank, _size):
        group = dist.group.WORLD
        group.monitored_barrier(PATIENCE)
        if rank == victim:
            die()
        began = time.monotonic()
        text = rf"monitored_barrier of process group .* was not completed: rank {victim} \(pid \d+\) died"
        with pytest.raises(HorovodInternalError, match=text):
            group.monitored_barrier(PATIENCE)
        return time.monotonic() - began


def watched_by_its_own_store(path: str) -> float:
    """Rank 0 keeps the store, and dies."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        Path(f"{path}.new").write_text(str(store.port), encoding="ascii")
        os.rename(f"{path}.new", path)
    else:
        while not os.path.exists(path):
            time.sleep(0.01)
        port = int(Path(path).read_text(encoding="ascii"))
        store = dist.TCPStore("127.0.0.1", port, size, is_master=False, wait_for_workers=False)
    dist.init_process_group("hvd", store=store, rank=rank, world_size=size)
    dist.group.WORLD.monitored_barrier(PATIENCE)
    if rank == 0:
        die()
    began = time.monotonic()
    with pytest.raises(HorovodInternalError, match=r"rank 0 .* died"):
        dist.group.WORLD.monitored_barrier(PATIENCE)
    return time.monotonic() - began


def interrupted_barrier(store: str) -> None:
    with process_group(store) as (rank, _size):
        group = dist.group.WORLD
        if rank < 2:
            with interrupted_after(0.3, soon=1.0):
                group.monitored_barrier(PATIENCE)
        dist.barrier()


def formed_again(store: str) -> None:
    """Twice, each time with one rank less."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        del os.environ[name]
    for left in (size, size - 1, size - 2):
        file = dist.FileStore(f"{store}.{left}", left)
        dist.init_process_group("hvd", store=file, rank=rank, world_size=left, timeout=PATIENCE)
        tensor = torch.ones(5)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [left] * 5
        pair = dist.new_group([0, 1])
        if left == size - 2:
            dist.barrier()
            break
        if rank == left - 1:
            die()
        with pytest.raises(HorovodInternalError, match=rf"rank {left - 1} .* died"):
            dist.all_reduce(tensor)
        if rank < 2:
            with pytest.raises(HorovodInternalError):
                dist.all_reduce(tensor, group=pair)
        dist.destroy_process_group()
    dist.destroy_process_group()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_monitored_barrier_ends_when_a_rank_dies(
    run_ranks: Callable[..., Any], tmp_path: Path, victim: int
) -> None:
    times = run_ranks(3, watched, [str(tmp_path / "store"), victim], dies=[victim])
    assert max(time for time in times if time is not None) < within(1.5), times


def test_a_monitored_barrier_ends_when_the_rank_with_the_store_dies(
    run_ranks: Callable[..., Any], tmp_path: Path
) -> None:
    times = run_ranks(3, watched_by_its_own_store, [str(tmp_path / "port")], dies=[0])
    assert max(time for time in times if time is not None) < within(1.5), times


def test_a_monitored_barrier_can_be_interrupted(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(3, interrupted_barrier, [str(tmp_path / "store")])


def test_those_that_are_left_form_a_group_again(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(4, formed_again, [str(tmp_path / "store")], dies=[2, 3])
