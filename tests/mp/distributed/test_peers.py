"""send and recv of torch.distributed on the backend "hvd", and what is built on them."""

import copy
import gc
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from load import within
from process_groups import as_tensor, check, in_another_order, process_group, random_arrays

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.torch.distributed import CollectiveTimeoutError

LENGTHS = [0, 1, 100, 5000, 20_000, 300_000]
TAGS = 3
ANY = TAGS  # the tag of messages that are received from any source
KINDS = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fnuz]
LIMIT = 0.3
FEATURES, MICROBATCHES = 6, 8


def random_messages(seeds: list[int]) -> None:
    """Drawn alike on each rank: among all ranks, and among some in a group of their own, where the ranks of
    the group are other numbers; a collective beside them. Each seed has tags of its own, as a receive from
    any source would take a message of a rank that is ahead.
    """
    with process_group() as (rank, size):
        some = list(range(size - 2, size))
        groups = {"all": (list(range(size)), dist.group.WORLD), "some": (some, dist.new_group(some))}
        for seed in seeds:
            shared, own = random.Random(seed), random.Random(1000 * seed + rank)
            plan = []
            for number in range(60):
                where = shared.choice(["all", "all", "some"])
                edge = shared.sample(groups[where][0], 2)
                tag = shared.randrange(TAGS + 1)
                length = 500 if tag == ANY else shared.choice(LENGTHS)
                plan.append((number, where, *edge, tag, length))
            reduced = torch.ones(1000)
            beside = dist.all_reduce(reduced, async_op=True)
            sends = deque(one for one in plan if one[2] == rank)
            receives = deque(one for one in plan if one[3] == rank)
            started = []
            expected: dict[tuple[str, int, int], list[int]] = {}
            for number, where, source, _, tag, _ in receives:
                expected.setdefault((where, source, tag), []).append(number)
            while sends or receives:
                if sends and (not receives or own.random() < 0.5):
                    number, where, _, to, tag, length = sends.popleft()
                    given = torch.arange(length, dtype=torch.float32) + number
                    started.append((None, None, dist.isend(given, to, groups[where][1], tag + 10 * seed)))
                else:
                    number, where, source, _, tag, length = receives.popleft()
                    found = torch.empty(length)
                    origin = None if tag == ANY else source
                    work = dist.irecv(found, origin, groups[where][1], tag + 10 * seed)
                    started.append(((where, tag), found, work))
            # The works of one lane in their order, as it says which message of any source is whose.
            for lane, found, work in started:
                assert work.wait()
                if lane is None:
                    continue
                where, tag = lane
                source = groups[where][0][work._source_rank()]
                number = expected[where, source, tag].pop(0)
                check(found, np.arange(found.numel()) + number, (seed, number))
            assert not any(expected.values())
            beside.wait()
            check(reduced, np.full(1000, size), "beside")
        dist.barrier()
        assert not dist.group.WORLD._communicator.messages


def every_type() -> None:
    """Also from and into memory with gaps, and of tensors with one element or none."""
    with process_group() as (rank, size):
        after, before = (rank + 1) % size, (rank - 1) % size
        seed = 0
        for dtype in KINDS:
            for shape in [(), (0,), (7,), (3, 5), (40_000,)]:
                arrays = random_arrays(seed := seed + 1, size, shape, dtype)
                given, found = as_tensor(arrays[rank], dtype), torch.zeros(shape, dtype=dtype)
                if len(shape) == 2:
                    given = torch.stack([given, given], dim=-1)[..., 1]
                    found = found.new_zeros((*shape, 2))[..., 0]
                works = [dist.irecv(found, before, tag=seed), dist.isend(given, after, tag=seed)]
                for work in works if rank % 2 else reversed(works):
                    assert work.wait() and work.is_completed() and work.is_success()
                check(found, arrays[before], (dtype, shape))
        dist.barrier()


def by_tags() -> None:
    """By their tags in any order, by one tag in theirs; the receiver is told whom from."""
    with process_group() as (rank, size):
        if rank > 0:
            for tag in (1, 2, 2, 3):
                dist.isend(torch.full((3,), float(tag)), 0, tag=tag)  # nobody waits
            gc.collect()
        else:
            found = torch.zeros(3, 2)
            for tag in (3, 2, 1, 2):
                sources = {dist.recv(found[:, 0], None, tag=tag) for _ in range(1, size)}
                assert sources == set(range(1, size)) or tag == 2
                assert found[:, 0].tolist() == [tag] * 3
        dist.barrier()
        # A batch: each with each of its neighbours.
        after, before = (rank + 1) % size, (rank - 1) % size
        found = torch.zeros(2, 4)
        batch = [
            dist.P2POp(dist.irecv, found[0], before, tag=1),
            dist.P2POp(dist.isend, torch.full((4,), rank + 0.5), after, tag=1),
            dist.P2POp(dist.isend, torch.full((4,), -rank - 0.5), before, tag=2),
            dist.P2POp(dist.irecv, found[1], after, tag=2),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        check(found, np.repeat([[before + 0.5], [-after - 0.5]], 4, axis=1), "a batch")
        # Objects.
        objects: list[Any] = [{"rank": rank}, "text" * 10_000]
        if rank == 0:
            for source in range(1, size):
                objects = [None, None]
                assert dist.recv_object_list(objects, source) == source
                assert objects == [{"rank": source}, "text" * 10_000]
        else:
            dist.send_object_list(objects, 0)
        dist.barrier()


def many() -> None:
    """More than the receiver keeps, and none that is over stays."""
    with process_group() as (rank, _):
        count = 6000
        if rank == 0:
            time.sleep(0.1)
            found = torch.zeros(count)
            works = [dist.irecv(found[i : i + 1], 1) for i in range(count)]
            for work in reversed(works):
                work.wait()
            check(found, np.arange(count), "many")
        elif rank == 1:
            for i in range(count):
                dist.isend(torch.full((1,), float(i)), 0)
        dist.barrier()
        assert len(dist.group.WORLD._communicator.messages) <= count


def futures_of_messages() -> None:
    with process_group() as (rank, size):
        found = torch.zeros(5)
        chained = dist.irecv(found, (rank - 1) % size).get_future().then(lambda done: done.value()[0].sum())
        dist.send(torch.full((5,), rank + 1.0), (rank + 1) % size)
        assert chained.wait() == 5 * ((rank - 1) % size + 1)


def late_messages(store: str) -> None:
    with process_group(store) as (rank, size):
        group = dist.new_group(timeout=timedelta(seconds=LIMIT))
        if rank == 0:
            found = torch.zeros(3)
            with pytest.raises(
                CollectiveTimeoutError,
                match=rf"receive from rank 1 \(tag 5\) on rank 0 of {size} .* {LIMIT} s is over. Has rank",
            ):
                dist.recv(torch.zeros(3), 1, group, tag=5)
            began = time.monotonic()
            work = dist.irecv(found, None, group, tag=6)
            with pytest.raises(CollectiveTimeoutError, match=r"from any rank .* 0.1 s"):
                work.wait(timedelta(seconds=0.1))
            assert time.monotonic() - began < within(1.1)
            dist.distributed_c10d._get_default_store().set("go", "on")
            assert work.wait(timedelta(seconds=20)) and work._source_rank() == 1  # it goes on
            assert found.tolist() == [6.0] * 3
        elif rank == 1:
            dist.distributed_c10d._get_default_store().wait(["go"])
            dist.send(torch.full((3,), 6.0), 0, group, tag=6)
        dist.barrier()


def at_odds() -> None:
    """Of another size: an error of the receiver, and the next message is well."""
    with process_group() as (rank, _):
        for length in (3, 100_000):
            if rank == 1:
                dist.send(torch.ones(length), 0)
                dist.send(torch.ones(2), 0)
            elif rank == 0:
                with pytest.raises(
                    TensorMismatchError, match=f"rank 1 has sent {4 * length} bytes with tag 0"
                ):
                    dist.recv(torch.ones(4), 1)
                found = torch.zeros(2)
                assert dist.recv(found) == 1 and found.tolist() == [1.0] * 2
        alone = dist.new_group([0])
        if rank == 0:
            with pytest.raises(ValueError, match="nobody to send to"):
                alone.send([torch.ones(1)], 0, 0)
        dist.barrier()


def left_open() -> None:
    """A group ends with a receive open, and the job goes on: the message finds memory that is there."""
    hvd.init()
    with process_group() as (rank, _size):
        if rank == 0:
            dist.irecv(torch.zeros(1000), 1, tag=1)
        dist.barrier()
        if rank > 0:
            hvd.barrier()  # rank 0 has left
        if rank == 1:
            dist.send(torch.ones(1000), 0, tag=1)
    if rank == 0:
        gc.collect()
        hvd.barrier()
    hvd.barrier()
    hvd.shutdown()


def forsaken(lengths: int) -> tuple[str, float]:
    """Rank 1 dies while the others wait for it."""
    with process_group() as (rank, _):
        dist.barrier()
        if rank == 1:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(HorovodInternalError) as caught:
            dist.recv(torch.ones(lengths), 1 if rank == 0 else None)
        return str(caught.value), time.monotonic() - began


def pipelined(schedule: str) -> None:
    """A pipeline of one stage on each rank: its gradients are those of the whole model."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    with process_group() as (rank, size):
        torch.manual_seed(7)
        whole = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES), torch.nn.Tanh()) for _ in range(size))
        )
        inputs, wanted = torch.randn(4 * MICROBATCHES, FEATURES), torch.randn(4 * MICROBATCHES, FEATURES)
        own = copy.deepcopy(whole[rank])
        stage = PipelineStage(own, rank, size, torch.device("cpu"))
        make = Schedule1F1B if schedule == "1f1b" else ScheduleGPipe
        run = make(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
        for _ in range(3):
            own.zero_grad()
            given = (inputs,) if rank == 0 else ()
            run.step(*given, **({"target": wanted} if rank == size - 1 else {}))
            whole.zero_grad()
            for given, target in zip(inputs.chunk(MICROBATCHES), wanted.chunk(MICROBATCHES), strict=True):
                (torch.nn.functional.mse_loss(whole(given), target) / MICROBATCHES).backward()
            for found, expected in zip(own.parameters(), whole[rank].parameters(), strict=True):
                torch.testing.assert_close(found.grad, expected.grad)
        dist.barrier()


PROGRAMS = [every_type, by_tags, many, futures_of_messages, at_odds, left_open]
TCP = {"env": {"HOROVOD_TRANSPORT": "tcp"}}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("np", [2, 3])
def test_messages(run_ranks: Callable[..., Any], np: int, program: Callable[[], None]) -> None:
    run_ranks(np, program)


@pytest.mark.parametrize("np", [2, 3])
def test_messages_that_do_not_come(run_ranks: Callable[..., Any], tmp_path: Path, np: int) -> None:
    run_ranks(np, late_messages, [str(tmp_path / "store")])


@pytest.mark.parametrize(("np", "options"), [(2, {}), (3, TCP), (4, {}), (4, {"hosts": [0, 0, 1, 1]})])
def test_random_messages(run_ranks: Callable[..., Any], np: int, options: dict[str, Any]) -> None:
    run_ranks(np, random_messages, [list(range(5))], **options)


def test_random_messages_in_another_order(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(3, random_messages, [list(range(5))], env=in_another_order([2, 0, 1], tmp_path))


@pytest.mark.parametrize("lengths", [10, 1_000_000])
@pytest.mark.parametrize("options", [{}, TCP], ids=["shm", "tcp"])
def test_the_death_of_a_rank_is_told(
    run_ranks: Callable[..., Any], options: dict[str, Any], lengths: int
) -> None:
    results = run_ranks(3, forsaken, [lengths], dies=[1], **options)
    for text, seconds in (results[0], results[2]):
        assert "rank 1" in text and seconds < within(2.0)


@pytest.mark.parametrize(("np", "schedule"), [(2, "1f1b"), (4, "1f1b"), (3, "gpipe")])
def test_a_pipeline(run_ranks: Callable[..., Any], np: int, schedule: str) -> None:
    run_ranks(np, pipelined, [schedule])
