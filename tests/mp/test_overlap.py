"""Communication overlaps the backward pass: the timeline shows it."""

import json
from pathlib import Path

from launch import horovodrun


def test_the_first_allreduce_of_a_step_starts_before_the_last_gradient_exists(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    result = horovodrun(2, "overlap.py", env={"HOROVOD_TIMELINE": str(path)})
    assert result.returncode == 0, result.output
    events = json.loads(path.read_text())
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    submitted: dict[str, list[int]] = {}
    started: dict[str, list[int]] = {}
    for event in events:
        times = {"NEGOTIATE_ALLREDUCE": submitted, "ALLREDUCE": started}.get(event.get("name"))
        if times is not None and event["ph"] == "B":
            times.setdefault(names[event["tid"]], []).append(event["ts"])
    assert len(submitted) == 32
    assert all(len(times) == 4 for times in [*submitted.values(), *started.values()])
    for step in range(4):
        first_allreduce = min(times[step] for times in started.values())
        last_gradient = max(times[step] for times in submitted.values())
        assert first_allreduce < last_gradient, f"step {step}"
