"""Runs elastic jobs of ``elastic_steps.py``, and reads what their lines tell."""

import os
import re
import statistics
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass

from launch import PROGRAMS, Launcher
from load import within

TRAINS = re.compile(r"trains as rank (\d+) of (\d+) step (\d+) worker (\d+) at ([\d.]+)")
DONE = re.compile(r"has done (\d+) steps as rank (\d+) of (\d+) worker (\d+)")
DIES = re.compile(r"dies worker (\d+) at ([\d.]+)")
KILLED = re.compile(r"^horovodrun: (rank|worker) (\d+) \((\S+)\) was killed by SIGKILL", re.MULTILINE)
BLAMED = re.compile(r"^horovodrun: ((?:rank|worker) \d+ \(\S+\) (?:was killed by|failed|is ended).*)", re.M)
ANY = ("--min-np", "1")
TIMES = 20 if os.environ.get("HVD_TEST_FULL") else 1


@dataclass
class Story:
    """What became of a job."""

    status: int
    output: str

    @property
    def done(self) -> dict[int, tuple[int, int, int]]:
        """Steps, rank and size, by worker."""
        return {
            int(each[3]): (int(each[0]), int(each[1]), int(each[2])) for each in DONE.findall(self.output)
        }

    @property
    def deaths(self) -> dict[int, float]:
        """When workers killed themselves."""
        return {int(worker): float(when) for worker, when in DIES.findall(self.output)}

    def gaps(self) -> list[float]:
        """For each death, the seconds until all who were there then had made a step again."""
        entries = [(float(when), int(worker)) for *_, worker, when in TRAINS.findall(self.output)]
        found = []
        for death in self.deaths.values():
            before = {worker for when, worker in entries if when < death and worker not in self.deaths}
            after = {worker: when for when, worker in reversed(entries) if when > death}
            found += [max(after[worker] for worker in before) - death] if before else []
        return found

    def start(self) -> list[float]:
        """The seconds from a death before the first step to the first step of all."""
        first = min(float(when) for *_, when in TRAINS.findall(self.output))
        return [first - death for death in self.deaths.values() if death < first]

    def check(self, ranks: int, steps: int, victims: Collection[int]) -> None:
        """All of ``victims`` died and were named, nobody else was, and nothing that was committed is lost."""
        assert self.status == 0, self.output
        assert self.deaths.keys() == set(victims), self.output
        assert set(range(ranks)) - set(victims) <= self.done.keys(), self.output
        assert {each[0] for each in self.done.values()} == {steps}, self.output
        assert sorted(rank for _, rank, _ in self.done.values()) == list(range(len(self.done))), self.output
        assert "has lost" not in self.output, self.output
        assert len(BLAMED.findall(self.output)) == len(victims), self.output
        self._check_names()

    def _check_names(self) -> None:
        """Who has trained has its own rank; others have their number, or the place of one that was lost."""
        had: dict[int, int] = {}
        for rank, _, _, worker, _ in TRAINS.findall(self.output):
            if int(worker) in self.deaths:
                had[int(worker)] = int(rank)
        told = [(kind, int(number)) for kind, number, _ in KILLED.findall(self.output)]
        for rank in had.values():
            assert ("rank", rank) in told, self.output
            told.remove(("rank", rank))
        for kind, number in told:
            assert number in (had.values() if kind == "rank" and had else self.deaths), self.output


def run(
    ranks: int,
    *options: str,
    steps: int = 20,
    words: tuple[object, ...] = (),
    timeout: float = 60,
    launcher: Launcher | None = None,
) -> Story:
    """A whole job; nothing may be left of it."""
    launcher = launcher or Launcher()
    program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), str(steps), *map(str, words))
    command = ("-np", str(ranks), *(options or ANY), *program)
    with tempfile.TemporaryDirectory() as folder:
        process = launcher.start(*command, OMP_NUM_THREADS="1", TMPDIR=folder)
        result = launcher.finish(process, timeout)
        launcher.wait_until_gone(5)
        assert os.listdir(folder) == []
    return Story(result.returncode, result.output)


def check_seconds(what: str, seconds: list[float], median: float = 2.0, worst: float = 5.0) -> None:
    """Prints the figures, which are to be at most these on an idle machine."""
    if seconds:
        figures = statistics.median(seconds), max(seconds)
        print(f"\n{what}: median {figures[0]:.3f} s, worst {figures[1]:.3f} s of {len(seconds)}")
        assert figures[0] < within(median) and figures[1] < within(worst), sorted(seconds)
