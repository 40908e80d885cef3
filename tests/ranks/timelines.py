"""What the timeline says of the parts of compiled steps."""

from typing import Any

Times = dict[str, list[int]]


def part_times(events: list[dict[str, Any]]) -> tuple[Times, Times]:
    """When each part was submitted and when it began to travel, step after step, by its name."""
    names = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    submitted: Times = {}
    travels: Times = {}
    for event in events:
        row = names.get(event.get("tid"), "")
        if event["ph"] == "B" and ".part." in row and event["name"] != "QUEUE":
            phase = travels if event["name"] == "ALLREDUCE" else submitted
            phase.setdefault(row, []).append(event["ts"])
    return submitted, travels
