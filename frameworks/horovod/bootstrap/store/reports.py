"""What ranks say, now and then, of how far they are, for whoever looks at the job while it runs."""

import json
import math
from typing import NamedTuple

_MOST_BYTES = 1 << 10
_MOST = 1 << 62


class Report(NamedTuple):
    """How far one rank is. Numbers that grow are totals since ``hvd.init()``.

    ``generation`` is that of an elastic job (0: it is none). ``time`` is by the clock of the rank's host, and
    compared with its own only. ``step`` of ``steps`` have been made; None: nobody has said it. ``waited``:
    seconds in which the program waited for operations, so for other ranks and the network; ``cpu``: seconds
    of all cores; ``memory``: bytes that the process has in memory.
    """

    rank: int
    generation: int
    time: float
    step: int | None
    steps: int | None
    epoch: float | None
    samples: float
    waited: float
    cpu: float
    memory: int

    def encode(self) -> bytes:
        """For the store."""
        return json.dumps(self).encode()


def decode(value: bytes) -> Report:
    """Raises ValueError for what ``Report.encode`` does not make."""
    found = json.loads(value) if len(value) <= _MOST_BYTES else None
    if not isinstance(found, list) or len(found) != len(Report._fields):
        raise ValueError("not a report")
    report = Report(*found)
    whole = (report.rank, report.generation, report.memory, report.step or 0, report.steps or 0)
    real = (report.time, report.epoch or 0, report.samples, report.waited, report.cpu)
    if not all(isinstance(each, int) and 0 <= each < _MOST for each in whole):
        raise ValueError("not a count")
    if not all(isinstance(each, int | float) and math.isfinite(each) and abs(each) < _MOST for each in real):
        raise ValueError("not a number")
    return report
