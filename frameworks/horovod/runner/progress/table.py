"""A job as ``horovodrun top`` shows it, in lines that fit a terminal. Pure."""

import itertools
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any

from horovod.bootstrap.text import escaped

_HEAD = "rank host               pid    step steps/s samples/s waits cores   memory"
_OTHERS = 4  # lines that are no rank's


def lines(job: Mapping[str, Any], width: int, room: int | None = None) -> list[str]:
    """``room``: how many lines there may be, if not as many as it takes."""
    ranks = job.get("ranks")
    if ranks is None:
        return [_cut(silent(job), width)]
    if not ranks:
        return [_cut(_title(job), width), "no rank runs, or another launcher has started them"]
    shown = ranks if room is None or len(ranks) + _OTHERS <= room else ranks[: max(1, room - _OTHERS - 1)]
    told = [_title(job), _progress(job), _HEAD, *map(_row, shown)]
    if len(shown) < len(ranks):
        told.append(f"     and {len(ranks) - len(shown)} more ranks")
    told.append(_waits(job))
    return [_cut(line, width) for line in told if line]


def silent(job: Mapping[str, Any]) -> str:
    """Of a job that does not answer."""
    return f"job {job['pid']} does not answer: its horovodrun is stopped, or has no time for it"


def _cut(line: str, width: int) -> str:
    """What of a line fits into so many columns, of which some characters take two."""
    if len(line) <= width // 2 or line.isascii():
        return line[:width]
    columns = itertools.accumulate(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
    return line[: sum(end <= width for end in columns)]


def _title(job: Mapping[str, Any]) -> str:
    hosts = len({row["host"] for row in job["ranks"]})
    parts = [
        f"{job['size']} rank{'s' if job['size'] != 1 else ''} on {hosts} host{'s' if hosts != 1 else ''}"
    ]
    if job["generation"] is not None:
        parts.append(f"generation {job['generation']}")
    parts.append(_time(job["seconds"]))
    words = [word.rpartition("/")[2] or word for word in job["command"]]
    return escaped(f"job {job['pid']}: {', '.join(parts)}: {shlex.join(words)}")


def _progress(job: Mapping[str, Any]) -> str:
    """How far it is, or how it could say that."""
    parts = []
    if job["step"] is not None:
        of = "" if job["steps"] is None else f" of {job['steps']} ({100 * job['progress']:.0f} %)"
        parts.append(f"step {job['step']}{of}")
    if job["epoch"] is not None:
        parts.append(f"epoch {job['epoch']:g}")
    if job["steps_per_second"] is not None:
        parts.append(f"{_number(job['steps_per_second'])} steps/s")
    if job["samples_per_second"]:
        parts.append(f"{_number(job['samples_per_second'])} samples/s")
    if job["seconds_left"] is not None:
        parts.append(f"{_time(job['seconds_left'])} left")
    return ", ".join(parts) or "steps are not known: call hvd.progress() after each, on every rank"


def _row(row: Mapping[str, Any]) -> str:
    waits = "-" if row["waiting"] is None else f"{100 * row['waiting']:.0f}%"
    memory = "-" if row["memory"] is None else f"{row['memory'] / (1 << 20):.0f} MiB"
    cells = (
        f"{_known(row['rank']):>4}",
        f"{_fitted(escaped(row['host']), 14):<14}",
        f"{_known(row['pid']):>7}",
        f"{_known(row['step']):>7}",
        f"{_number(row['steps_per_second']):>7}",
        f"{_number(row['samples_per_second']):>9}",
        f"{waits:>5}",
        f"{_number(row['cores']):>5}",
        f"{memory:>8}",
    )
    return " ".join(cells)


def _waits(job: Mapping[str, Any]) -> str:
    rows = {row["rank"]: row for row in job["ranks"]}
    if job["awaited"] is None:
        return ""
    one = rows.pop(job["awaited"])
    others = sorted(row["waiting"] for row in rows.values())
    share = others[len(others) // 2]
    shares = f"{100 * share:.0f} % of their time, it {100 * one['waiting']:.0f} %"
    return f"the others wait for rank {one['rank']} on {escaped(one['host'])}: {shares}"


def _known(number: Any) -> str:
    return "-" if number is None else str(number)


def _fitted(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 2]}.."


def _number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 1000 else f"{number:.0f}"


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours = f"{whole // 3600}:{whole % 3600 // 60:02}" if whole >= 3600 else str(whole // 60)
    return f"{hours}:{whole % 60:02}"
