"""Slurm's compressed lists in full, without a call of scontrol: tasks per node, and names of nodes."""

import re
from collections.abc import Iterator

_MOST = 1 << 20  # nodes; a text of a few bytes could name billions
_TASKS = r"(?P<tasks>[0-9]{1,7})(\(x(?P<nodes>[0-9]{1,7})\))?"
_RANGE = r"(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18}))?"


def tasks_per_node(text: str) -> list[int]:
    """Slurm's "2(x3),1" in full: [2, 2, 2, 1]. Raises ValueError for anything else."""
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(_TASKS, part)
        if match is None or len(tasks) > _MOST:
            raise ValueError(f"{text[:200]!r} is no list of tasks such as 2(x3),1")
        tasks += [int(match["tasks"])] * min(int(match["nodes"] or 1), _MOST)
    return tasks


def nodes(text: str, most: int = _MOST) -> list[str]:
    """The first ``most`` names of a node list: "n[01-03,7],gpu[1-2]a" gives n01, n02, n03, n7, gpu1a, gpu2a.

    Raises ValueError for anything else.
    """
    try:
        names: list[str] = []
        for pattern in _split(text):
            for name in _expanded(pattern):
                if len(names) == min(most, _MOST):
                    return names
                names.append(name)
        return names
    except ValueError:
        raise ValueError(f"{text[:200]!r} is no list of nodes such as n[01-03,7],gpu1") from None


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    patterns, depth = [""], 0
    for c in text:
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            raise ValueError
        if c == "," and not depth:
            patterns.append("")
        else:
            patterns[-1] += c
    if depth or not all(patterns):
        raise ValueError
    return patterns


def _expanded(pattern: str) -> Iterator[str]:
    """The names of one pattern; of several pairs of brackets the last counts fastest."""
    prefix, bracket, rest = pattern.partition("[")
    if not bracket:
        yield pattern
        return
    ranges, _, suffix = rest.partition("]")
    for number in _numbers(ranges):
        for end in _expanded(suffix) if suffix else ("",):
            yield prefix + number + end


def _numbers(ranges: str) -> Iterator[str]:
    """ "01-03,7" counts 01, 02, 03, 7: as wide as the first of its range."""
    for part in ranges.split(","):
        match = re.fullmatch(_RANGE, part)
        first, last = (match["first"], match["last"] or match["first"]) if match else ("1", "0")
        if int(last) < int(first):
            raise ValueError
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
