"""Order, fusion and caching between real processes."""

import json
import re
from pathlib import Path

import pytest
from launch import horovodrun


@pytest.mark.parametrize(
    ("ranks", "transport", "rounds"), [(2, "shm", 1000), (3, "shm", 150), (3, "tcp", 150)]
)
def test_ranks_may_submit_in_any_order(ranks: int, transport: str, rounds: int) -> None:
    result = horovodrun(ranks, "random_order.py", str(rounds), env={"HOROVOD_TRANSPORT": transport})
    assert result.returncode == 0, result.output
    assert result.output.count("every round correct") == ranks


def test_a_thousand_small_tensors_travel_together_and_by_cached_ids() -> None:
    result = horovodrun(2, "many_small.py")
    assert result.returncode == 0, result.output
    collectives = [int(n) for n in re.findall(r"(\d+) collectives", result.output)]
    assert len(collectives) == 10
    # A rank that gets no CPU while it submits splits a batch, so the odd step may need more.
    assert sorted(collectives)[5] <= 10, result.output


def test_the_timeline_shows_every_phase_of_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    result = horovodrun(
        2, "many_small.py", env={"HOROVOD_TIMELINE": str(path), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    )
    assert result.returncode == 0, result.output
    events = json.loads(path.read_text())
    rows = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    assert {f"small.{t}" for t in range(1000)} <= set(rows)
    of_one = [e for e in events if e["ph"] != "M" and e["tid"] == rows["small.7"]]
    phases = [(e["ph"], e.get("name")) for e in of_one]
    assert phases == [("B", "NEGOTIATE_ALLREDUCE"), ("E", None), ("B", "ALLREDUCE"), ("E", None)] * 5
    assert sum(e.get("name") == "CYCLE_START" for e in events) >= 5
    assert [e["ts"] for e in of_one] == sorted(e["ts"] for e in of_one)
