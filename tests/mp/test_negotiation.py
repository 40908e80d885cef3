"""Order, fusion and caching between real processes."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

NAMED = 200
SMALL = 1000
STEPS = 5


def ranks_random_order(rounds: int) -> dict[str, int]:
    """Named tensors; every rank starts them, and waits for them, in orders of its own."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    order = random.Random(rank)
    tensors = [torch.empty(1 + 13 * t % 700) for t in range(NAMED)]
    places = list(range(NAMED))
    for step in range(rounds):
        for t, tensor in enumerate(tensors):
            tensor.fill_((rank + 1) * (t + step))
        order.shuffle(places)
        handles = {t: hvd.allreduce_async_(tensors[t], name=f"tensor.{t}", op=hvd.Sum) for t in places}
        order.shuffle(places)
        for t in places:
            hvd.synchronize(handles[t])
        for t, tensor in enumerate(tensors):
            expected = size * (size + 1) // 2 * (t + step)
            assert tensor.eq(expected).all(), f"rank {rank}, step {step}, tensor {t}: {tensor[0]}"
    return hvd.counters()


@pytest.mark.parametrize(
    ("ranks", "transport", "rounds"), [(2, "shm", 1000), (3, "shm", 150), (3, "tcp", 150)]
)
def test_ranks_may_submit_in_any_order(run_ranks, ranks: int, transport: str, rounds: int) -> None:
    for counters in run_ranks(ranks, ranks_random_order, [rounds], env={"HOROVOD_TRANSPORT": transport}):
        assert counters["cache_misses"] == NAMED, counters


def ranks_many_small() -> list[int]:
    """How many collectives each step of many small tensors takes."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    tensors = [torch.empty(256) for _ in range(SMALL)]
    collectives = []
    for step in range(STEPS):
        for t, tensor in enumerate(tensors):
            tensor.fill_(t + rank)
        hvd.barrier()
        before = hvd.counters()
        handles = [hvd.allreduce_async_(tensors[t], name=f"small.{t}", op=hvd.Sum) for t in range(SMALL)]
        for handle in handles:
            hvd.synchronize(handle)
        after = hvd.counters()
        assert all(b.eq(size * t + size * (size - 1) // 2).all() for t, b in enumerate(tensors))
        misses = after["cache_misses"] - before["cache_misses"]
        assert misses == (SMALL if step == 0 else 0), f"step {step}: {misses} announced in full"
        collectives.append(after["collectives"] - before["collectives"])
    hvd.shutdown()
    return collectives


def test_a_thousand_small_tensors_travel_together_and_by_cached_ids(run_ranks) -> None:
    collectives = [n for result in run_ranks(2, ranks_many_small) for n in result]
    # A rank that gets no CPU while it submits splits a batch, so on a busy machine most steps may need more.
    assert min(collectives) <= 10 and sorted(collectives)[len(collectives) // 2] <= SMALL // 20, collectives


def test_the_timeline_shows_every_phase_of_every_tensor(run_ranks, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    env = {"HOROVOD_TIMELINE": str(path), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    run_ranks(2, ranks_many_small, env={**env, "HOROVOD_LEARNED_SCHEDULE": "0"})
    events = json.loads(path.read_text())
    rows = {e["args"]["name"]: e["tid"] for e in events if e.get("name") == "thread_name"}
    assert {f"allreduce.small.{t}" for t in range(SMALL)} <= set(rows)
    of_one = [e for e in events if e["ph"] in "BE" and e["tid"] == rows["allreduce.small.7"]]
    phases = [(e["ph"], e.get("name")) for e in of_one]
    names = ["NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"] * STEPS
    assert phases == [event for name in names for event in (("B", name), ("E", None))]
    marks = [e["name"] for e in events if e["ph"] == "i" and e["tid"] == rows["allreduce.small.7"]]
    assert sorted(marks) == sorted(["rank 0 ready", "rank 1 ready"] * STEPS)
    assert sum(e.get("name") == "CYCLE_START" for e in events) >= STEPS
    assert [e["ts"] for e in of_one] == sorted(e["ts"] for e in of_one)


ROUND = 10  # steps


def ranks_repeat_a_step(rounds: int) -> list[list[int]]:
    """In each round of steps that are alike: negotiation's messages, and the tensors that were scheduled."""
    hvd.init()
    tensors = [torch.ones(100 + 7 * t) for t in range(161)]
    counters = [hvd.counters()]
    for _ in range(rounds):
        for _ in range(ROUND):
            handles = [hvd.allreduce_async_(t, name=f"t{i}", op=hvd.Max) for i, t in enumerate(tensors)]
            for handle in handles:
                hvd.synchronize(handle)
        counters.append(hvd.counters())
    hvd.shutdown()
    return [
        [after["control_messages"] - before["control_messages"], after["scheduled"] - before["scheduled"]]
        for before, after in pairwise(counters)
    ]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize(
    "hosts", [[0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2, 2, 2]], ids=["2", "4", "2x2", "2+1+3"]
)
def test_steps_that_repeat_are_not_negotiated(
    run_ranks, transport: str, hosts: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "timeline.json"
    env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_TIMELINE": str(path)}
    # A rank that loses its processor in the middle of a step for too long leaves the schedule.
    for rounds in run_ranks(len(hosts), ranks_repeat_a_step, [4], env=env, hosts=hosts):
        assert [0, ROUND * 161] in rounds[1:]
    names = {event.get("name") for event in json.loads(path.read_text())}
    assert {"NEGOTIATE_ALLREDUCE", "GATE_ALLREDUCE"} <= names


SCALARS = {"loss": torch.float32, "right": torch.int64, "seen": torch.int32, "norm": torch.bfloat16}
METRIC_STEPS = 40


def ranks_average_metrics() -> tuple[int, list[int]]:
    """A large gradient and some numbers in each step; how many tensors marks have carried, and negotiation's
    messages in each quarter.
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    messages = []
    for step in range(METRIC_STEPS):
        if step % (METRIC_STEPS // 4) == 0:
            messages.append(hvd.counters()["control_messages"])
        assert hvd.allreduce(torch.full((3000,), float(rank)), name="gradient", op=hvd.Max)[7] == size - 1
        for name, dtype in SCALARS.items():
            value = torch.tensor([rank + step, 2 * rank], dtype=dtype)
            expected = sum(r + step for r in range(size)), size * (size - 1)
            assert hvd.allreduce(value, name=name, op=hvd.Sum).tolist() == list(expected)
        mean = hvd.allreduce(torch.tensor(rank + 0.5), name="mean")
        assert mean.item() == sum(r + 0.5 for r in range(size)) / size
    counters = hvd.counters()
    hvd.shutdown()
    messages.append(counters["control_messages"])
    return counters["carried"], [after - before for before, after in pairwise(messages)]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("hosts", [[0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2, 2, 2]], ids=["3", "2x2", "2+1+3"])
def test_marks_carry_the_metrics_of_a_step(run_ranks, transport: str, hosts: list[int]) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    for carried, messages in run_ranks(len(hosts), ranks_average_metrics, env=env, hosts=hosts):
        assert 0 in messages[1:]
        assert (len(SCALARS) + 1) * METRIC_STEPS // 2 <= carried < (len(SCALARS) + 1) * METRIC_STEPS
