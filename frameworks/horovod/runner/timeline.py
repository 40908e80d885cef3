"""Makes one timeline of those that several ranks have written, on one clock.

horovodrun --merge-timelines all.json timeline.0.json timeline.1.json
python -m horovod.runner.timeline all.json timeline.0.json timeline.1.json
"""

import argparse
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovod.bootstrap.text import escaped

Event = dict[str, Any]

_HEAD_EVENTS = 16  # the description of the process is among them
_LONGEST_LINE = 1 << 20  # of characters; blanks are written in hundreds of thousands, events in thousands
_LATEST_US = 2.0**62
_USAGE_STATUS = 2
_UNWRITABLE = "it holds what JSON cannot hold"


class TimelineError(ValueError):
    """A file is no timeline, or the files do not belong together; the text says which and why."""


class _NoTimeline(TimelineError):
    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}, line {line}: this is no timeline of Horovod")


@dataclass(frozen=True)
class Clock:
    """What a file says of the clock that it was written by, in microseconds."""

    name: str  # the same in files that were written by one clock
    now_us: float  # at the start of the file
    wall_minus_now_us: float


@dataclass(frozen=True)
class _Source:
    path: Path
    rank: int
    clock: Clock


def events(path: Path) -> Iterator[Event]:
    """The events of a timeline, one after the other; a file may be larger than the memory.

    A last line that is cut off (the machine went down) is passed over.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        broken = 0
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
            text = line.strip().rstrip(",").rstrip()
            if text in ("", "[", "]"):
                continue
            if broken:
                raise _NoTimeline(path, broken)
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                broken = number
                continue
            if not _is_event(event):
                raise _NoTimeline(path, number)
            yield event
        if broken and len(line) == _LONGEST_LINE:
            raise _NoTimeline(path, broken)


def _is_event(event: Any) -> bool:
    """Also what ``merge`` computes with is as it must be."""
    return isinstance(event, dict) and isinstance(event.get("ph"), str) and _is_time(event.get("ts", 0))


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < _LATEST_US


def _source(path: Path) -> _Source:
    for number, event in enumerate(events(path)):
        if event["ph"] == "M" and event.get("name") == "horovod_clock":
            try:
                source = _Source(path, int(event["pid"]), Clock(**event["args"]["clock"]))
            except (KeyError, TypeError, ValueError, OverflowError):
                break
            clock = source.clock
            if isinstance(clock.name, str) and _is_time(clock.now_us) and _is_time(clock.wall_minus_now_us):
                return source
            break
        if number == _HEAD_EVENTS:
            break
    raise TimelineError(f"{path}: this is no timeline of Horovod: it does not tell its clock")


def _sources(paths: Sequence[Path]) -> list[_Source]:
    by_rank: dict[int, _Source] = {}
    for source in map(_source, paths):
        other = by_rank.setdefault(source.rank, source)
        if other is not source:
            both = f"{other.path} and {source.path}"
            raise TimelineError(f"{both} are both of rank {source.rank}: merge the files of one run")
    return [by_rank[rank] for rank in sorted(by_rank)]


def shifts(clocks: Sequence[Clock]) -> list[float]:
    """What to add to the times of each file, so that all are on one clock that begins at 0.

    Files of one clock get one shift, so their order is exact. Different clocks (hosts) are compared by the
    time of day that they showed, so their order is as exact as those times.
    """
    walls: dict[str, float] = {}
    for clock in clocks:
        walls.setdefault(clock.name, clock.wall_minus_now_us)
    begin = min(clock.now_us + walls[clock.name] for clock in clocks)
    return [walls[clock.name] - begin for clock in clocks]


def merge(output: Path, inputs: Sequence[Path]) -> list[int]:
    """Writes the events of ``inputs`` to ``output``, a process per rank, and returns the ranks.

    ``output`` appears when it is complete. Raises TimelineError or OSError.
    """
    if any(output.resolve() == path.resolve() for path in inputs):
        raise TimelineError(f"{output} is to be written and read: name another file to write")
    sources = _sources(inputs)
    partial = output.with_name(f"{output.name}.{secrets.token_hex(8)}.partial")
    try:
        with partial.open("x", encoding="utf-8") as file:
            separator = "[\n"
            for source, shift in zip(sources, shifts([s.clock for s in sources]), strict=True):
                for event in events(source.path):
                    if "ts" in event:
                        event["ts"] = round(event["ts"] + shift, 3)
                    file.write(separator + _written(event, source.path))
                    separator = ",\n"
            file.write("\n]\n")
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return [source.rank for source in sources]


def _written(event: Event, path: Path) -> str:
    """Numbers that JSON does not have, and what is nested too deep to be written again, are not Horovod's."""
    try:
        return json.dumps(event, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        raise TimelineError(f"{path}: this is no timeline of Horovod: {_UNWRITABLE}") from None


def merge_command(output: str, inputs: Sequence[str]) -> int:
    """``merge`` for the command line: says what was done or what is wrong; returns the status."""
    try:
        ranks = merge(Path(output), [Path(name) for name in inputs])
    except TimelineError as error:
        print(f"horovodrun: error: {escaped(str(error))}", file=sys.stderr)
        return _USAGE_STATUS
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"horovodrun: error: {escaped(text)}", file=sys.stderr)
        return 1
    print(f"{escaped(output)}: ranks {', '.join(map(str, ranks))}; open it in https://ui.perfetto.dev")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m horovod.runner.timeline``."""
    parser = argparse.ArgumentParser(
        prog="python -m horovod.runner.timeline",
        description="Merges the timelines that the ranks of one run have written into one, on one clock.",
    )
    parser.add_argument("output", metavar="OUT", help="the file to write")
    parser.add_argument("inputs", metavar="FILE", nargs="+", help="a timeline of one rank")
    arguments = parser.parse_args(argv)
    return merge_command(arguments.output, arguments.inputs)


if __name__ == "__main__":
    sys.exit(main())
