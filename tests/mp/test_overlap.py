"""Communication overlaps the backward pass: the timeline shows it."""

import json
from pathlib import Path

from launch import horovodrun

STEPS = 8


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
    assert all(len(times) == STEPS for times in [*submitted.values(), *started.values()])
    first_allreduce = [min(times[step] for times in started.values()) for step in range(STEPS)]
    last_gradient = [max(times[step] for times in submitted.values()) for step in range(STEPS)]
    overlapped = sum(first < last for first, last in zip(first_allreduce, last_gradient, strict=True))
    # A rank that gets no CPU during the other's backward pass leaves nothing to overlap with.
    assert overlapped >= 3, f"{overlapped} of {STEPS} steps"
