"""Runs elastic jobs of ``elastic_steps.py``, and reads what their lines tell."""

import re
import sys
from dataclasses import dataclass

from launch import PROGRAMS, Launcher

TRAINS = re.compile(r"trains as rank (\d+) of (\d+) step (\d+) worker (\d+) at ([\d.]+)")
DONE = re.compile(r"has done (\d+) steps as rank (\d+) of (\d+) worker (\d+)")
DIES = re.compile(r"dies worker (\d+) at ([\d.]+)")
ANY = ("--min-np", "1")


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


def run(
    ranks: int, *options: str, steps: int = 20, words: tuple[object, ...] = (), timeout: float = 60
) -> Story:
    """A whole job; nothing may be left of it."""
    launcher = Launcher()
    program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), str(steps), *map(str, words))
    process = launcher.start("-np", str(ranks), *(options or ANY), *program, OMP_NUM_THREADS="1")
    result = launcher.finish(process, timeout)
    launcher.wait_until_gone(5)
    return Story(result.returncode, result.output)
