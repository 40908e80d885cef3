"""Sampling the libraries in turn, and what is reported of the samples."""

import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

OURS = "horovod"
OTHERS_LIMIT = 0.1
"""The share of the ranks' cores that other programs may take before a ratio says more about them."""


@dataclass
class Row:
    """One case. `rounds` holds, per library, the samples (seconds) of each round."""

    benchmark: str
    case: str
    processes: int
    rounds: dict[str, list[list[float]]]
    load: float
    note: str = ""

    def minimum(self, library: str) -> float:
        return min(min(samples) for samples in self.rounds[library])

    def median(self, library: str) -> float:
        return statistics.median(value for samples in self.rounds[library] for value in samples)

    def ratios(self, peer: str) -> list[float]:
        """The peer's median over ours, one per round: above 1 we are faster."""
        pairs = zip(self.rounds[peer], self.rounds[OURS], strict=True)
        return [statistics.median(theirs) / statistics.median(ours) for theirs, ours in pairs]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def interleave(libraries: dict[str, Callable[[], list[float]]], rounds: int) -> dict[str, list[list[float]]]:
    """Runs every library once per round, each round starting with another one."""
    results: dict[str, list[list[float]]] = {name: [] for name in libraries}
    names = list(libraries)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(libraries[name]())
    return results


def load() -> float:
    return os.getloadavg()[0]


def seconds(value: float) -> str:
    """Three figures and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def taken_by_others(busy: float, own: float, capacity: float) -> float:
    """The share of some cores that other programs took, of seconds: busy by anyone, by us, and in all."""
    return max(0.0, busy - own) / capacity


def disturbance(shares: list[float]) -> str | None:
    """Why there is no ratio, or None. ``shares`` are those that other programs took, by benchmark."""
    if max(shares) <= OTHERS_LIMIT:
        return None
    return (
        f"Other programs took {max(shares):.0%} of the ranks' cores, so there are only times and no ratios: "
        "run it again on an idle machine."
    )


def table(rows: list[Row], compare: bool = True) -> str:
    """Per case and library: minimum, median, and to compare the median ratio of rounds with its spread."""
    heading = f"{'case':34} {'np':>2}  {'library':18} {'min':>9} {'median':>9}"
    lines = [f"{heading}  {'/ ours':>7} {'(rounds)':>13}" if compare else heading]
    for row in rows:
        for number, library in enumerate(row.rounds):
            ratios = row.ratios(library)
            title = f"{row.benchmark} {row.case}" if number == 0 else ""
            times = f"{seconds(row.minimum(library)):>9} {seconds(row.median(library)):>9}"
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            ratio = f"{statistics.median(ratios):6.2f}x {spread:>13}" if compare and library != OURS else ""
            lines.append(f"{title:34} {row.processes:>2}  {library:18} {times}  {ratio}".rstrip())
        if row.note:
            lines.append(f"{'':39}{row.note}")
    return "\n".join(lines)
