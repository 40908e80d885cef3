"""A process with horovod in it from start to end: children, many starts, and ends with operations in
flight.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import threads
import torch
from launch import Job
from load import within
from torch.utils.data import DataLoader, Dataset

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

CYCLES = 100
EXITS = 50
PROGRAM = Path(__file__).parents[1] / "programs" / "exit_in_flight.py"


class Squares(Dataset):
    """Says what horovod looks like from a worker."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index * index, int(hvd.is_initialized())])


class OfItsRank(Dataset):
    """Each rank has rows of its own."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([index, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.global_process_set.rank()])


def loads_data():
    for method in ("fork", "spawn"):
        loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context=method)
        for _ in range(2 if method == "fork" else 1):
            handle = hvd.allreduce_async_(torch.ones(100_000), name="beside", op=hvd.Sum)
            rows = torch.cat(list(loader))
            assert rows.tolist() == [[index * index, 0] for index in range(8)], method
            assert hvd.synchronize(handle).eq(hvd.size()).all()


def forked_workers_know_their_rank():
    loader = DataLoader(OfItsRank(), num_workers=2, multiprocessing_context="fork")
    who = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.rank()]
    assert torch.cat(list(loader)).tolist() == [[index, *who] for index in range(4)]


def child_is_no_rank():
    """A forked child may ask whose it is, runs no collectives, and ends without disturbing its parent."""
    handle = hvd.allreduce_async_(torch.ones(10), name="over the fork")
    mine = hvd.rank(), hvd.size()
    pid = os.fork()
    if pid == 0:
        status = 2 if hvd.is_initialized() else 0
        try:
            hvd.synchronize(handle)
            status = 5
        except hvd.HorovodInternalError as error:
            status = status if "forked" in str(error) else 6
        if (hvd.rank(), hvd.size()) != mine or hvd.global_process_set.size() != hvd.size():
            status = 7
        told = f"forked from rank {hvd.rank()} (process {os.getppid()})"
        calls = [lambda: hvd.allreduce_(torch.ones(1)), hvd.barrier, lambda: hvd.add_process_set([0])]
        for call in [*calls, hvd.counters]:
            try:
                call()
                status = 3
            except ValueError as error:
                status = status if told in str(error) and "parent" in str(error) else 4
        hvd.shutdown()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert hvd.synchronize(handle).tolist() == [1] * 10
    hvd.barrier()


def ranks_with_children():
    hvd.init()
    child_is_no_rank()
    forked_workers_know_their_rank()
    loads_data()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    return multiprocessing.active_children() == []


@pytest.mark.slow
def test_children(run_ranks):
    assert run_ranks(2, ranks_with_children, env={"HOROVOD_TRANSPORT": "shm"}) == [True, True]


def census():
    """What must not grow: descriptors, threads, mappings of shared memory, mappings."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    shared = [line for line in maps if "memfd" in line]
    return [len(os.listdir("/proc/self/fd")), threads.live(), len(shared), len(maps)]


def ranks_cycle(cycles):
    """Starts and ends many times; returns a census after some cycles, one after all, and the seconds of a
    cycle.
    """
    counts = []
    begin = time.monotonic()
    for cycle in range(cycles):
        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        result = hvd.allreduce(torch.full((1000,), float(rank + cycle)), op=hvd.Sum)
        assert result.eq(sum(rank + cycle for rank in range(size))).all()
        if cycle % 10 == 3:
            hvd.allreduce_async_(torch.ones(10), name=f"left {rank}")  # never matched: shutdown ends it
            hvd.barrier()
        hvd.shutdown()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.rank()
        if cycle in (10, cycles - 1):
            counts.append(census())
    return {
        "counts": counts,
        "seconds": (time.monotonic() - begin) / cycles,
        "threads": threading.active_count(),
    }


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_many_starts_leave_nothing(run_ranks, transport):
    cycles = CYCLES if transport == "shm" else 30
    for result in run_ranks(2, ranks_cycle, [cycles], env={"HOROVOD_TRANSPORT": transport}, timeout=90):
        before, after = result["counts"]
        assert after[:3] == before[:3]
        assert after[3] <= before[3] + 8  # the allocator's own
        assert result["threads"] == 1


def reduce_often():
    with contextlib.suppress(ValueError, HorovodInternalError):  # as in the program
        for _ in range(1000):
            hvd.allreduce(torch.ones(10))


def exits_in_flight(number):
    """Leaves operations in flight and ends the interpreter, each time in another way."""
    hvd.init()
    tensors = [torch.ones(1000) for _ in range(20)]
    for index, tensor in enumerate(tensors):
        hvd.allreduce_async_(tensor, name=f"in flight {index}")
    if number % 2 == 1:
        threading.Thread(target=reduce_often, daemon=True).start()
    raise SystemExit(0)


def ranks_exit_often(times):
    """Forks before any start, so that an end costs no import; returns the statuses that are not 0."""
    statuses = []
    for number in range(times):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            exits_in_flight(number)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return [status for status in statuses if status != 0]


def test_exit_in_flight_alone(run_ranks):
    assert run_ranks(1, ranks_exit_often, [2]) == [[]]


def test_exit_in_flight_without_a_framework():
    def run(number):
        return subprocess.run(
            [sys.executable, str(PROGRAM), str(number)], timeout=within(20), env=environment
        ).returncode

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(EXITS))) == [7 * (number % 2) for number in range(EXITS)]


@pytest.mark.full
def test_exit_in_flight_of_two_ranks_without_a_framework():
    for number in range(EXITS):
        job = Job(2, PROGRAM.name, str(number))
        assert job.finish(timeout=30).returncode == 7 * (number % 2), number


def ranks_exit_together(how):
    """Operations that only this rank starts: the end of the process ends them."""
    hvd.init()
    for index in range(20):
        hvd.allreduce_async_(torch.ones(1000), name=f"only on {hvd.rank()}: {index}")
        hvd.allreduce_async_(torch.ones(1000), name=f"on all: {index}")
    hvd.barrier()  # whoever submits after another rank has left is told so
    if how == "shutdown":
        hvd.shutdown()
    return True


@pytest.mark.parametrize("how", ["shutdown", "exit"])
def test_exit_in_flight_together(run_ranks, how):
    assert run_ranks(2, ranks_exit_together, [how], timeout=30, finalize=True) == [True, True]
