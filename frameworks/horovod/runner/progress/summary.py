"""What the ranks of a job say together. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_LEAST_EDGE = 0.15  # of the time, by which the others wait longer than the one that they wait for


def of_job(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``ranks``: rows of a snapshot; see ``view.View``."""

    def known(name: str) -> list[Any]:
        return [row[name] for row in ranks if row[name] is not None]

    step = min(known("step"), default=None)
    steps = max(known("steps"), default=None)
    rates = known("steps_per_second")
    rate = statistics.median(rates) if rates else None
    left = None if step is None or not steps else max(0, steps - step)
    return {
        "size": len(ranks),
        "step": step,
        "steps": steps,
        "epoch": min(known("epoch"), default=None),
        "steps_per_second": rate,
        "samples_per_second": sum(known("samples_per_second")) if known("samples_per_second") else None,
        "progress": None if step is None or not steps else min(1.0, step / steps),
        "seconds_left": None if left is None or (left and not rate) else left / (rate or 1),
        "awaited": awaited(known("rank"), ranks),
    }


def awaited(numbers: Sequence[int], ranks: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank that the others wait for: who comes last to each collective waits for nobody. None: they wait
    equally long, or it is not known.
    """
    waiting = {row["rank"]: row["waiting"] for row in ranks if row["waiting"] is not None}
    if len(waiting) < 2 or len(waiting) < len(numbers):
        return None
    last = min(waiting, key=lambda rank: waiting[rank])
    others = statistics.median(share for rank, share in waiting.items() if rank != last)
    return last if others - waiting[last] > _LEAST_EDGE else None
