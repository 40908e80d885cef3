"""A snapshot of a job in the words of others: Prometheus' text format, and the status of a TrainJob."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

_JOB = (
    ("ranks", "size", "Ranks that run."),
    ("generation", "generation", "Generation of an elastic job."),
    ("step", "step", "Steps that all ranks have made."),
    ("steps", "steps", "Steps that the training has in all."),
    ("epoch", "epoch", "Epoch that the training is in."),
    ("progress_ratio", "progress", "Share of the steps that have been made."),
    ("steps_per_second", "steps_per_second", "Steps a second, over the last seconds."),
    ("samples_per_second", "samples_per_second", "Samples a second of all ranks."),
    ("remaining_seconds", "seconds_left", "Seconds until the last step, at this speed."),
    ("awaited_rank", "awaited", "The rank that the others wait for."),
)
_RANK = (
    ("rank_step", "step", "gauge", "Steps that this rank has made."),
    ("rank_samples_total", "samples", "counter", "Samples that it has gone through."),
    ("rank_waiting_seconds_total", "waited", "counter", "Seconds in which it waited for operations."),
    ("rank_cpu_seconds_total", "cpu", "counter", "Seconds of all cores that it has used."),
    ("rank_memory_bytes", "memory", "gauge", "Bytes that it has in memory."),
    ("rank_report_age_seconds", "age", "gauge", "Seconds since its last report."),
)


def prometheus(snapshot: Mapping[str, Any]) -> str:
    """The metrics of a job; those that are not known are left out."""
    lines: list[str] = []
    for name, key, text in _JOB:
        if snapshot[key] is not None:
            lines += _metric(name, "gauge", text, [("", snapshot[key])])
    ranks = [row for row in snapshot["ranks"] if row["rank"] is not None]
    for name, key, kind, text in _RANK:
        samples = [(_labels(row), row[key]) for row in ranks if row[key] is not None]
        if samples:
            lines += _metric(name, kind, text, samples)
    return "".join(f"{line}\n" for line in lines)


def trainer_status(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """What a TrainJob of Kubeflow has as its status.trainerStatus; its numbers are texts there."""
    names = ("step", "steps", "epoch", "steps_per_second", "samples_per_second")
    status: dict[str, Any] = {
        "lastUpdatedTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "metrics": [
            {"name": name, "value": f"{snapshot[name]:.6g}" if "per" in name else str(snapshot[name])}
            for name in names
            if snapshot[name] is not None
        ],
    }
    if snapshot["progress"] is not None:
        status["progressPercentage"] = int(100 * snapshot["progress"])
    if snapshot["seconds_left"] is not None:
        status["estimatedRemainingSeconds"] = round(snapshot["seconds_left"])
    return status


def public(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """What others than the user may see: not the command line; with the status of a TrainJob."""
    shown = {name: value for name, value in snapshot.items() if name != "command"}
    return {**shown, "trainerStatus": trainer_status(snapshot)}


def _metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    head = [f"# HELP horovod_{name} {text}", f"# TYPE horovod_{name} {kind}"]
    return [*head, *(f"horovod_{name}{labels} {value!r}" for labels, value in samples)]


def _labels(row: Mapping[str, Any]) -> str:
    host = row["host"].replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{rank="{row["rank"]}",host="{host}"}}'
