"""A job that goes from 4 ranks to 2 and to 3 makes the steps that one rank would have made."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from launch import PROGRAMS, Launcher

from horovod.elastic.sampling import order_of

LOSSES = re.compile(r"losses (\[.*\])")
SAMPLES, INPUTS = 203, 6


def reference(steps: int, batch_size: int) -> list[float]:
    """The losses of one process that computes whole batches, by numpy."""
    dice = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, INPUTS, generator=dice, dtype=torch.float64).numpy()
    targets = torch.randn(SAMPLES, 1, generator=dice, dtype=torch.float64).numpy()
    parameters = np.vstack([np.full((INPUTS, 1), 0.1), np.zeros((1, 1))])
    velocity = np.zeros_like(parameters)
    x = np.hstack([inputs, np.ones((SAMPLES, 1))])
    losses: list[float] = []
    for epoch in range(steps):
        order = order_of(SAMPLES, True, 3, epoch)
        for begin in range(0, SAMPLES, batch_size):
            chosen = order[begin : begin + batch_size]
            error = x[chosen] @ parameters - targets[chosen]
            losses.append(float(np.mean(error**2)))
            velocity = 0.9 * velocity + 2 * x[chosen].T @ error / len(chosen)
            parameters = parameters - 0.05 * velocity
    return losses[:steps]


class Resized:
    """A job whose hosts change whenever it has come so far."""

    def __init__(self, folder: Path, last: int, batch_size: int, largest: int) -> None:
        self._hosts = folder / "hosts"
        self._offer(4)
        script = folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {self._hosts}\n")
        script.chmod(0o700)
        self._launcher = Launcher()
        program = (sys.executable, str(PROGRAMS / "elastic_batches.py"))
        words = map(str, (last, batch_size, largest, 0.02))
        self._process = self._launcher.start(
            *("-np", "4", "--min-np", "2", "--host-discovery-script", str(script)), *program, *words,
            OMP_NUM_THREADS="1",
        )  # fmt: skip
        self.lines: list[str] = []

    def _offer(self, slots: int) -> None:
        fresh = self._hosts.with_suffix(".new")
        fresh.write_text(f"localhost:{slots}\n")
        fresh.rename(self._hosts)

    def resize(self, slots: int) -> None:
        """Once it has made some steps with the ranks that it has."""
        self.await_steps()
        self._offer(slots)

    def await_steps_of(self, ranks: int) -> None:
        while f"of {ranks} ranks" not in self.lines[-1]:
            self.await_steps()

    def await_steps(self) -> None:
        assert self._process.stdout is not None
        for _ in range(10):
            line = self._process.stdout.readline().decode()
            assert line, self._launcher.finish(self._process, 30).output
            self.lines.append(line)

    def finish(self) -> subprocess.Popen[bytes]:
        result = self._launcher.finish(self._process, 90)
        assert result.returncode == 0, result.output
        self.lines += result.output.splitlines()
        self._launcher.wait_until_gone(5)
        return self._process


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "largest"), [(30, 0), (32, 5)], ids=["one pass", "several passes"])
def test_the_loss_curve_is_that_of_a_job_that_nothing_disturbed(
    tmp_path: Path, batch_size: int, largest: int
) -> None:
    job = Resized(tmp_path, 3, batch_size, largest)
    job.resize(2)
    job.await_steps_of(2)
    job.resize(3)
    job.finish()
    told = next(match for match in map(LOSSES.search, job.lines) if match)
    ranks, losses = zip(*json.loads(told[1]), strict=True)
    assert set(ranks) == {2, 3, 4}
    assert np.allclose(losses, reference(len(losses), batch_size), rtol=1e-9)
