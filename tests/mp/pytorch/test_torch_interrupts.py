"""Signal handlers that raise at random moments while an operation is submitted or waited for."""

import gc
import random
import signal
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod import _core
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.gradient_reductions import GradientReductions
from horovod.torch.operations import ops

ROUNDS = 150
ELEMENTS = 5000
GRADIENTS = GradientReductions(ops, GradientSettings(op=hvd.Sum))
KINDS = ["in_place", "blocking", "copy", "group", "broadcast", "gather", "gradient"]


class Alarm(Exception):
    """What the signal handler raises."""


def raise_alarm(*_: object) -> NoReturn:
    raise Alarm


def begin(kind: str, name: str, value: float) -> int | None:
    """Starts an operation on tensors that nobody keeps; its handle."""
    tensor = torch.full((ELEMENTS,), value)
    if kind == "in_place":
        return hvd.allreduce_async_(tensor, op=hvd.Sum, name=name)
    if kind == "blocking":
        hvd.allreduce_(tensor, op=hvd.Sum, name=name)
        return None
    if kind == "copy":
        return hvd.allreduce_async(tensor, op=hvd.Sum, name=name)
    if kind == "group":
        return hvd.grouped_allreduce_async_([tensor, tensor.clone()], op=hvd.Sum, name=name)
    if kind == "broadcast":
        return hvd.broadcast_async_(tensor, 0, name=name)
    if kind == "gather":
        return hvd.allgather_async(tensor, name=name)
    return GRADIENTS.start([tensor], name)


def expected(kind: str, values: list[float]) -> np.ndarray:
    if kind == "broadcast":
        return np.full(ELEMENTS, values[0])
    if kind == "gather":
        return np.repeat(values, ELEMENTS)
    return np.full(2 * ELEMENTS if kind == "group" else ELEMENTS, sum(values))


def check(kind: str, handle: int) -> None:
    result = hvd.synchronize(handle)
    parts = result if isinstance(result, list) else [result]
    np.testing.assert_array_equal(torch.cat(parts).numpy(), expected(kind, [1.0, 2.0]))


def interrupted(first: int, timing: random.Random) -> tuple[list[str], dict[str, int], str]:
    """Starts operations until the alarm; their names, the handles that the program got, and the last name."""
    names: list[str] = []
    handles = {}
    try:
        signal.setitimer(signal.ITIMER_REAL, timing.uniform(20e-6, 400e-6))
        for number in range(first, first + 100_000):
            name = f"{KINDS[number % len(KINDS)]}.{number}"
            names.append(name)
            handle = begin(name.split(".")[0], name, 1.0)
            if handle is not None:
                handles[name] = handle
    except Alarm:
        handle = None
    return names, handles, names[-1] if names else ""


def rank_is_interrupted() -> int:
    """Rank 0; how many operations were in flight that its program knows nothing of."""
    timing = random.Random(7)
    unknown = number = 0
    for _ in range(ROUNDS):
        names, handles, last = interrupted(number, timing)
        number += len(names)
        in_flight = set(_core.in_flight(0))
        assert handles.keys() <= in_flight <= set(names)
        unknown += len(in_flight) - len(handles)
        gc.collect()
        strangers = [torch.full((ELEMENTS,), 5.0) for _ in range(8)]  # where lost tensors would have been
        again = [last] if last and last not in handles else []
        retries = []
        for name in again:  # behind itself, where it is in flight
            kind = name.split(".")[0]
            retries.append((kind, begin("in_place" if kind == "blocking" else kind, name, 1.0)))
        hvd.broadcast_object([name for name in names if name in in_flight] + again, root_rank=0)
        for name, handle in handles.items():
            check(name.split(".")[0], handle)
        for kind, handle in retries:
            check(kind, handle)
        hvd.barrier()
        assert _core.in_flight(0) == []
        assert all(torch.equal(one, torch.full((ELEMENTS,), 5.0)) for one in strangers)
    return unknown


def rank_follows() -> None:
    for _ in range(ROUNDS):
        names = hvd.broadcast_object(None, root_rank=0)
        handles = []
        for name in names:
            kind = name.split(".")[0]
            if name in names[: len(handles)]:  # the second of a name
                check(kind, handles[names.index(name)])
            handles.append(begin("in_place" if kind == "blocking" else kind, name, 2.0))
        for place, (name, handle) in enumerate(zip(names, handles, strict=True)):
            if name not in names[place + 1 :]:
                check(name.split(".")[0], handle)
        hvd.barrier()


def ranks_are_interrupted() -> int:
    hvd.init()
    if hvd.rank() != 0:
        rank_follows()
        return 1
    before = signal.signal(signal.SIGALRM, raise_alarm)
    try:
        return rank_is_interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_interrupted_operations_write_to_nothing_else_and_keep_no_name(run_ranks, transport) -> None:
    unknown, _ = run_ranks(2, ranks_are_interrupted, env={"HOROVOD_TRANSPORT": transport})
    assert unknown > 0


def ranks_start_again(mark: str) -> list[float]:
    """As the cells of a notebook: each is interrupted on rank 0, and started again on both."""
    hvd.init()
    interrupted = Path(mark)
    results = []
    before = signal.signal(signal.SIGALRM, raise_alarm)
    for cell in (1.0, 2.0, 3.0):
        if hvd.rank() == 0:
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                hvd.allreduce(torch.ones(3), op=hvd.Sum, name="cell")
        hvd.barrier()
        handle = hvd.allreduce_async(torch.full((3,), cell), op=hvd.Sum, name="cell")
        if hvd.rank() != 0:
            results.append(hvd.synchronize(handle)[0].item())  # with what rank 0 had started before
            handle = hvd.allreduce_async(torch.full((3,), cell), op=hvd.Sum, name="cell")
        results.append(hvd.synchronize(handle)[0].item())
    if hvd.rank() == 0:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            hvd.join()
        interrupted.touch()
    while not interrupted.exists():
        time.sleep(0.01)
    results.append(hvd.join() >= 0)
    signal.signal(signal.SIGALRM, before)
    return results


def test_what_was_interrupted_can_be_started_again(run_ranks, tmp_path) -> None:
    mine, others = run_ranks(2, ranks_start_again, [str(tmp_path / "interrupted")])
    assert mine == [2.0, 4.0, 6.0, True]
    assert others == [2.0, 2.0, 3.0, 4.0, 4.0, 6.0, True]
