"""What every timeline must keep to, whoever wrote it: the Chrome trace event format, array form."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]

# Required fields and their types, by phase type.
_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "B": {"ts": (int, float), "pid": int, "tid": int, "name": str},
    "E": {"ts": (int, float), "pid": int, "tid": int},
    "i": {"ts": (int, float), "pid": int, "tid": int, "name": str, "s": str},
    "M": {"pid": int, "tid": int, "name": str, "args": dict},
}
_ARGUMENTS = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "process_labels": {"labels": str},
    "thread_name": {"name": str},
    "horovod_clock": {"clock": dict},
}


def load(path: Path) -> list[Event]:
    """The events of a file, each checked; the text must be JSON as a whole."""
    found = json.loads(path.read_text(encoding="utf-8"))
    check(found)
    return found


def check(found: list[Event], complete: bool = True) -> None:
    """``complete``: every slice has ended, which is not so when the process was killed."""
    for event in found:
        _check_fields(event)
    named = {(e["pid"], e["tid"]) for e in found if e["name" if e["ph"] == "M" else "ph"] == "thread_name"}
    open_slices: dict[tuple[int, int], int] = defaultdict(int)
    latest: dict[tuple[int, int], float] = {}
    for event in found:
        if event["ph"] == "M":
            continue
        row = event["pid"], event["tid"]
        assert row in named, f"a row without name: {event}"
        assert event["ts"] >= latest.get(row, 0), f"out of order: {event}"
        latest[row] = event["ts"]
        open_slices[row] += {"B": 1, "E": -1}.get(event["ph"], 0)
        assert open_slices[row] in (0, 1), f"slices do not follow one another: {event}"
    assert not complete or not any(open_slices.values()), "a slice has no end"


def _check_fields(event: Event) -> None:
    fields = _FIELDS[event["ph"]]
    for name, kind in fields.items():
        assert isinstance(event[name], kind), event
    assert set(event) - set(fields) - {"ph"} <= {"args"}, event
    if event["ph"] == "i":
        assert event["s"] in ("t", "p", "g"), event
    if event["ph"] == "M":
        arguments = _ARGUMENTS[event["name"]]
        assert set(event["args"]) == set(arguments), event
        assert all(isinstance(event["args"][name], kind) for name, kind in arguments.items()), event


def rows(found: list[Event]) -> dict[tuple[int, str], list[Event]]:
    """The events of each row, by process and name of the row."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e.get("name") == "thread_name"}
    grouped: dict[tuple[int, str], list[Event]] = {(pid, name): [] for (pid, _), name in names.items()}
    for event in found:
        if event["ph"] != "M":
            grouped[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return grouped
