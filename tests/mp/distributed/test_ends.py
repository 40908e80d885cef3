"""What is left of groups, operations and blocks that have ended, or that somebody has broken off."""

import gc
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from load import within
from process_groups import interrupted_after, process_group

from horovod import _core
from horovod.torch.distributed import CollectiveTimeoutError

MIB = 1 << 20


def shared_bytes() -> int:
    """That the shared memory of this process takes, of its files."""
    blocks = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            if "memfd:horovod" in os.readlink(f"/proc/self/fd/{number}"):
                blocks += os.fstat(int(number)).st_blocks
        except OSError:  # it was that of the listing
            continue
    return blocks * 512


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def many_groups() -> None:
    with process_group() as (_rank, size):
        everybody = list(range(size))

        def make_and_destroy() -> None:
            group = dist.new_group(everybody, use_local_synchronization=True)
            tensor = torch.ones(100)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [size] * 100
            dist.destroy_process_group(group)

        for _ in range(60):
            make_and_destroy()
        dist.barrier()
        memory, mapped = shared_bytes(), mappings()
        for _ in range(200):
            make_and_destroy()
        dist.barrier()
        assert shared_bytes() < memory + 40 * MIB and mappings() < mapped + 40


def interrupted() -> None:
    with process_group() as (rank, _size):
        if rank == 0:
            with interrupted_after(0.3):
                dist.new_group([0, 1], use_local_synchronization=True)
            work = dist.all_reduce(torch.ones(1), async_op=True)
            with interrupted_after(0.3):
                work.wait()
            dist.barrier(async_op=True)
            tensor = torch.ones(1)
            with interrupted_after(0.3):
                dist.recv(tensor, 1)
            dist.send(tensor, 1)
        else:
            dist.recv(torch.ones(1), 0)
            with pytest.raises(RuntimeError, match="rank 0 was interrupted"):
                dist.new_group([0, 1], use_local_synchronization=True)
            work = dist.all_reduce(torch.ones(1), async_op=True)
            dist.barrier()
            dist.send(torch.ones(1), 0)
        work.wait()
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()


def late_and_over(store: str) -> None:
    """What has timed out lets its tensors go when the other rank has come."""
    with process_group(store) as (rank, _size):
        short = dist.new_group(timeout=timedelta(seconds=0.3))
        meet = dist.distributed_c10d._get_default_store()
        if rank == 0:
            tensors = [torch.ones(5) for _ in range(4)]
            kept = [weakref.ref(tensor) for tensor in tensors]
            work = dist.all_reduce(tensors[0], group=short, async_op=True)
            message = dist.irecv(tensors[1], 1, group=short)
            for future in (work.get_future(), message.get_future()):
                with pytest.raises(RuntimeError, match="timeout"):
                    future.wait()
            del future
            with pytest.raises(CollectiveTimeoutError):
                dist.all_reduce(tensors[2], group=short)
            with pytest.raises(CollectiveTimeoutError):
                dist.all_reduce(tensors[3], group=short, async_op=True).wait()
            meet.set("go", "on")
        else:
            meet.wait(["go"])
            for _ in range(3):
                dist.all_reduce(torch.ones(5), group=short)
            dist.send(torch.ones(5), 0, group=short)
        dist.barrier()
        if rank == 0:
            begin = time.monotonic()
            while message in short._communicator.messages and time.monotonic() < begin + 10:
                message.is_completed() and message.is_over()
            dist.barrier(group=short)
            assert not short._communicator.messages and not short._communicator.in_flight
            del work, message, tensors
            gc.collect()
            assert [ref() for ref in kept] == [None] * 4
        else:
            dist.barrier(group=short)


def impossible_tags() -> None:
    with process_group() as (rank, _size):
        for tag in (1 << 62, -(1 << 62) - 1):
            for call in (dist.send, dist.recv):
                with pytest.raises(ValueError, match=r"-2\*\*62 to 2\*\*62 - 1"):
                    call(torch.ones(1), 1 - rank, tag=tag)
        assert not dist.group.WORLD._communicator.messages
        for tag in ((1 << 62) - 1, -(1 << 62)):
            tensor = torch.tensor([float(rank)])
            dist.send(tensor, 1, tag=tag) if rank == 0 else dist.recv(tensor, 0, tag=tag)
            assert tensor.item() == 0


def broken_block() -> None:
    """A block of coalesced messages that raises, after which the group goes on."""
    with process_group() as (rank, _size):
        group, device = dist.group.WORLD, torch.device("cpu")
        with (
            pytest.raises(ZeroDivisionError),
            dist.distributed_c10d._coalescing_manager(group, device, async_ops=True),
        ):
            raise ZeroDivisionError
        for _ in range(500):
            tensor = torch.ones(3)
            group.send([tensor], 1, 0).wait() if rank == 0 else group.recv([tensor], 0, 0).wait()
        assert len(group._coalesced) <= 64
        group._start_coalescing(device)
        tensors = [torch.full((3,), float(rank)) for _ in range(2)]
        for tensor in tensors:
            group.send([tensor], 1, 0) if rank == 0 else group.recv([tensor], 0, 0)
        work = group._end_coalescing(device)
        assert work.wait() and len(work.result()) == 2 and group._coalesced is None
        assert [tensor.tolist() for tensor in tensors] == [[0.0] * 3] * 2


def closed_twice() -> None:
    with process_group():
        group = dist.new_group()
        group.abort()
        group.shutdown()
        with pytest.raises(ValueError, match="destroyed"):
            dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()
        default = dist.group.WORLD
    default.abort()
    default.shutdown()
    assert not _core.is_initialized()


# A group that goes with the interpreter, and another handler of its end.
AT_EXIT = """
import atexit, sys, torch, torch.distributed as dist, horovod.torch.distributed

class Keeper:
    def __del__(self):
        for group in self.groups:
            group.abort()
            group.shutdown()
        print("finalizing" if sys.is_finalizing() else "running")

rank, keeper = int(sys.argv[1]), Keeper()
atexit.register(lambda: dist.group.WORLD.abort())
dist.init_process_group("hvd", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
keeper.groups = [dist.new_group(), dist.group.WORLD]
keeper.open = dist.irecv(torch.ones(3), 1 - rank, group=keeper.groups[0])
keeper.itself = keeper
"""


@pytest.mark.slow
def test_the_end_of_the_interpreter(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", AT_EXIT, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        out, err = process.communicate(timeout=within(60))
        assert (process.returncode, out) == (0, "finalizing\n"), err
        assert "Traceback" not in err and "ignored" not in err, err


PROGRAMS = [many_groups, interrupted, impossible_tags, broken_block, closed_twice]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_ends(
    run_ranks: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
    program: Callable[[], None],
) -> None:
    monkeypatch.setenv("HOROVOD_TRANSPORT", transport)
    run_ranks(2, program)


def test_timeouts_keep_no_tensors(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(2, late_and_over, [str(tmp_path / "store")])
