"""How the ranks make sure that all of them want the same change of process sets, before any makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horovod import _core
from horovod.bootstrap.text import escaped

_NAME = "hvd.add_process_set() or its like"  # reserved; reports show it
_LENGTH_BYTES = 8
_LONG_SPAN = 5  # of ranks that are written as first-last


def agree(caller: str, change: Any, problem: str | None) -> None:
    """Returns when every rank of the job has made the same call with the same ``change`` (made of lists,
    numbers and text) and none has a ``problem``. Otherwise raises ValueError, with one text on every rank.
    """
    proposals = exchange([caller, change, problem])
    size = _core.topology()[1]
    absent = sorted(set(range(size)) - proposals.keys())
    if absent:
        raise ValueError(
            f"{caller}: {ranks_text(absent)} cannot take part after hvd.join(), until all have joined"
        )
    callers = {rank: called for rank, (called, _, _) in proposals.items()}
    problems = {rank: told for rank, (_, _, told) in proposals.items() if told is not None}
    changes = {rank: wanted for rank, (_, wanted, _) in proposals.items()}
    if len(set(callers.values())) > 1:
        raise ValueError(f"The ranks ask for different changes of process sets: {listed(callers)}")
    if problems:
        raise ValueError(f"{caller}: {listed(problems)}")
    if len(_alike(changes)) > 1:
        raise ValueError(f"{caller}: the ranks ask for different process sets: {listed(changes)}")


def exchange(message: Any, name: str = _NAME, process_set: int = 0) -> dict[int, Any]:
    """The ``message`` (made of lists, numbers and text) of every rank of a process set, by rank. Those that
    have joined are missing. ``name`` is that of the collective.
    """
    import array  # late: most jobs have no sets

    data = array.array("B", framed(message))
    address, count = data.buffer_info()
    tensor = (address, 0, _core.DTYPES["uint8"], (count,), count, 0)
    outputs = _core.run(_core.ALLGATHER, name, (tensor,), process_set=process_set, keep=data)
    if not outputs:
        raise RuntimeError("the core gave an allgather no output")
    return dict(frames(outputs[0].tobytes()))


def framed(message: Any) -> bytes:
    """The ``message`` of this rank, as it travels in an allgather."""
    import json

    text = json.dumps([_core.topology()[0], message]).encode()
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def frames(data: bytes) -> Iterator[tuple[int, Any]]:
    """The ranks with their messages, of what was gathered."""
    import json

    start = 0
    while start < len(data):
        begin = start + _LENGTH_BYTES
        start = begin + int.from_bytes(data[begin - _LENGTH_BYTES : begin], "little")
        rank, message = json.loads(data[begin:start])
        yield rank, message


def _alike(by_rank: dict[int, Any]) -> dict[str, list[int]]:
    """The ranks of each different value, in the order of the ranks."""
    import json

    groups: dict[str, list[int]] = {}
    for rank, value in sorted(by_rank.items()):
        groups.setdefault(value if isinstance(value, str) else json.dumps(value), []).append(rank)
    return groups


def listed(by_rank: dict[int, Any]) -> str:
    """Who says what, each different value once: ``rank 0: x; ranks 1-3: y``."""
    return "; ".join(f"{ranks_text(ranks)}: {escaped(value)}" for value, ranks in _alike(by_rank).items())


def ranks_text(ranks: list[int]) -> str:
    """``rank 2`` or ``ranks 0, 2-9``, of ascending numbers."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    texts = [
        ", ".join(map(str, span)) if len(span) < _LONG_SPAN else f"{span[0]}-{span[-1]}" for span in spans
    ]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(texts)
