"""send and recv between real processes."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from load import within

import horovod.torch as hvd

SIZES = [0, 1, 100, 5000, 20_000, 300_000]
TAGS = 4
WIRINGS = {
    "shm": {"env": {"HOROVOD_TRANSPORT": "shm"}},
    "tcp": {"env": {"HOROVOD_TRANSPORT": "tcp"}},
    "hosts": {"hosts": [0, 0, 1, 1]},
}
CASES = [(2, "shm"), (3, "shm"), (4, "shm"), (2, "tcp"), (3, "tcp"), (4, "hosts")]
FULL = bool(os.environ.get("HVD_TEST_FULL"))


def content(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, size).astype(np.float32)


def ranks_run_programs(size: int, seeds: list[int]) -> int:
    """Random messages among all ranks, drawn alike on each; how many this one has received."""
    first_two = hvd.ProcessSet([0, 1]) if size > 2 else hvd.global_process_set
    hvd.init(process_sets=[first_two] if size > 2 else None)
    rank = hvd.rank()
    received = 0
    for seed in seeds:
        shared, own = random.Random(seed), random.Random(1000 * seed + rank)
        plan = []
        for number in range(60):
            pair = shared.random() < 0.2
            count = 2 if pair else size
            edge = (shared.randrange(count), shared.randrange(count))
            plan.append((number, pair, *edge, shared.randrange(TAGS), shared.choice(SIZES)))
        sets = {True: first_two, False: hvd.global_process_set}
        started = []
        reduced = hvd.allreduce_async(torch.ones(1000), name="beside", op=hvd.Sum)
        sends = [one for one in plan if one[2] == rank]
        receives = [one for one in plan if one[3] == rank]
        while sends or receives:
            if sends and (not receives or own.random() < 0.5):
                number, pair, _, dest, tag, length = sends.pop(0)
                tensor = torch.from_numpy(content(length, number))
                started.append((None, tensor, hvd.send_async(tensor, dest, tag, sets[pair])))
            else:
                number, pair, source, _, tag, length = receives.pop(0)
                tensor = torch.empty(length)
                handle = hvd.recv_async(tensor, source, tag, sets[pair])
                started.append(((number, source), tensor, handle))
        own.shuffle(started)
        for expected, tensor, handle in started:
            sender = hvd.synchronize(handle)
            if expected is None:
                continue
            number, source = expected
            assert sender == source
            assert np.array_equal(tensor.numpy(), content(tensor.numel(), number)), (seed, number)
            received += 1
        assert hvd.synchronize(reduced).eq(size).all()
    hvd.barrier()
    hvd.shutdown()
    return received


@pytest.mark.parametrize(("ranks", "wiring"), CASES)
def test_random_programs(run_ranks, ranks: int, wiring: str) -> None:
    seeds = list(range(40 if FULL else 6))
    assert sum(run_ranks(ranks, ranks_run_programs, [ranks, seeds], **WIRINGS[wiring])) == 60 * len(seeds)


def ranks_gather_from_anybody(count: int) -> list[int]:
    """Rank 0 takes what comes; the others send as fast as they can, before it asks for anything."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    taken = [0] * size
    if rank > 0:
        for number in range(count):
            hvd.send(torch.tensor([rank, number]), dest=0)
    else:
        time.sleep(0.2)
        pair = torch.zeros(2, dtype=torch.int64)
        for _ in range(count * (size - 1)):
            sender = hvd.recv(pair)
            assert pair.tolist() == [sender, taken[sender]]
            taken[sender] += 1
    hvd.barrier()
    hvd.shutdown()
    return taken


@pytest.mark.parametrize(("ranks", "wiring"), [(3, "shm"), (3, "tcp"), (4, "hosts")])
def test_a_receive_from_anybody_keeps_the_order_of_each(run_ranks, ranks: int, wiring: str) -> None:
    taken = run_ranks(ranks, ranks_gather_from_anybody, [5000], **WIRINGS[wiring])
    assert taken[0] == [0] + [5000] * (ranks - 1)


def ranks_wait_for_the_victim(size_sent: int, note: str) -> tuple[float, str]:
    """Rank 1 is killed while rank 0 waits for its message, and rank 2 for one of anybody, or to send."""
    hvd.init()
    rank = hvd.rank()
    hvd.barrier()
    if rank == 1:
        time.sleep(0.3)
        Path(note).write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.zeros(size_sent)
    try:
        hvd.recv(tensor, source=1) if rank == 0 else hvd.synchronize(hvd.send_async(tensor, dest=1))
        hvd.recv(tensor)  # what was small has been sent
    except hvd.HorovodInternalError as error:
        return time.time(), str(error)
    raise AssertionError("a message of nobody has arrived")


@pytest.mark.parametrize("elements", [10, 1_000_000])
@pytest.mark.parametrize(("ranks", "wiring"), [(3, "shm"), (3, "tcp"), (4, "hosts")])
def test_the_death_of_a_peer_ends_every_wait(
    run_ranks, tmp_path: Path, ranks: int, wiring: str, elements: int
) -> None:
    note = tmp_path / "died"
    arguments = [elements, str(note)]
    results = run_ranks(ranks, ranks_wait_for_the_victim, arguments, dies=[1], **WIRINGS[wiring])
    for rank, result in enumerate(results):
        if rank == 1:
            continue
        when, text = result
        assert "rank 1" in text, text
        assert when - float(note.read_text()) < within(1.0)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ranks_receive_the_last_first(count: int, elements: int) -> int:
    """How much memory the messages take at a receiver who waits for another one of the same sender."""
    hvd.init()
    rank, grown = hvd.rank(), 0
    if rank == 0:
        data = torch.arange(float(elements))
        handles = [hvd.send_async(data, dest=1) for _ in range(count)]
        hvd.send(torch.ones(1), dest=1, tag=1)
        for handle in handles:
            hvd.synchronize(handle)
    else:
        data = torch.ones(elements)
        before = resident()
        hvd.recv(torch.zeros(1), tag=1)
        grown = resident() - before
        for _ in range(count):
            hvd.recv(data.zero_())
            assert data[-1] == elements - 1
    hvd.barrier()
    hvd.shutdown()
    return grown


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_a_sender_does_not_fill_the_memory_of_its_receiver(run_ranks, wiring: str) -> None:
    _, grown = run_ranks(2, ranks_receive_the_last_first, [3000, 16_000], **WIRINGS[wiring])  # 183 MiB
    assert grown < 12 << 20


def ranks_wait_for_a_second() -> float:
    """Seconds of a processor that a receive takes while nothing comes."""
    hvd.init()
    hvd.barrier()
    used = time.process_time()
    if hvd.rank() == 0:
        hvd.recv(torch.zeros(1))
    else:
        time.sleep(1.0)
        hvd.send(torch.ones(1), dest=0)
    used = time.process_time() - used
    hvd.shutdown()
    return used


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_a_receive_that_waits_uses_no_processor(run_ranks, wiring: str) -> None:
    assert max(run_ranks(2, ranks_wait_for_a_second, **WIRINGS[wiring])) < 0.1


def ranks_disagree_about_size() -> str:
    hvd.init()
    rank = hvd.rank()
    message = ""
    if rank == 0:
        hvd.send(torch.zeros(100), dest=1, tag=3)
    else:
        try:
            hvd.recv(torch.zeros(10), source=0, tag=3)
        except hvd.TensorMismatchError as error:
            message = str(error)
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).eq(2).all()  # the job goes on
    hvd.shutdown()
    return message


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_a_receive_of_another_size_is_an_error_of_its_own(run_ranks, wiring: str) -> None:
    sender, receiver = run_ranks(2, ranks_disagree_about_size, **WIRINGS[wiring])
    assert sender == ""
    for part in ("rank 0 has sent 400 bytes with tag 3", "rank 1 receives", "40 bytes (float32 [10])"):
        assert part in receiver


def ranks_end_with_receives_open() -> str:
    hvd.init()
    handle = hvd.recv_async(torch.zeros(3), source=1 - hvd.rank())
    with pytest.raises(TimeoutError, match=r"recv from rank \d \(tag 0\)"):
        hvd.wait(handle, timeout=0.05)
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError) as caught:
        hvd.synchronize(handle)
    return str(caught.value)


def test_shutdown_ends_a_receive_and_says_so(run_ranks) -> None:
    for text in run_ranks(2, ranks_end_with_receives_open):
        assert "recv from rank" in text
