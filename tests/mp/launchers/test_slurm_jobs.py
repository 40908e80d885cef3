"""The scripts of examples/slurm under Slurm's real daemons: two nodes that are this machine."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import slurm
from launch import PROGRAMS, ROOT, Launcher
from load import within

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "it is here")
SCRIPTS = ROOT / "examples" / "slurm"
SMALL = ("--nodes=2", "--cpus-per-task=1", "--ntasks-per-node=1")


@contextmanager
def queued(
    folder: Path, name: str, program: str, environment: dict[str, str], *options: str, **words: str
) -> Iterator[str]:
    """Queues a script of the examples, with our horovodrun and program, with ``options`` of sbatch, and other
    ``words`` in it. Gives the number of the job, of which nothing is left afterwards.
    """
    command = f"{sys.executable} -m horovod.runner.launch"
    text = (SCRIPTS / name).read_text()
    text = text.replace("\nhorovodrun ", f"\n{command} ").replace(
        "python train.py", f"{sys.executable} {program}"
    )
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    script = folder / name
    script.write_text(text)
    output = ["--parsable", f"--chdir={folder}", f"--output={folder}/output", "--overcommit"]
    command = ["sbatch", *output, *options, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    try:
        yield job
    finally:
        end = time.monotonic() + within(20)
        while subprocess.run(["squeue", "-h", "-j", job], env=environment, capture_output=True).stdout:
            if time.monotonic() > end:
                subprocess.run(["scancel", job], env=environment, check=True)
                end += within(20)
            time.sleep(0.2)


def wait_for(text: str, folder: Path, seconds: float) -> str:
    """What the job has written, as soon as ``text`` is in it."""
    deadline = time.monotonic() + within(seconds)
    output = folder / "output"
    while True:
        shown = output.read_text(errors="replace") if output.exists() else ""
        if text in shown:
            return shown
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)


PROGRAM = """
import os
from horovod.common import basics as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size(), "in", os.environ["SLURMD_NODENAME"], flush=True)
"""


def names() -> list[str]:
    host = os.uname().nodename.partition(".")[0]
    return [host, f"{host}-second"]


def test_a_job_on_the_nodes_of_an_allocation(tmp_path: Path) -> None:
    own = Launcher()
    with slurm.cluster(tmp_path, names()) as variables:
        environment = {**own.environment, **variables, "OMP_NUM_THREADS": "1"}
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        with queued(tmp_path, "job.sbatch", str(program), environment, *SMALL):
            for rank in range(2):
                wait_for(f"rank {rank} of 2 in {names()[rank]}", tmp_path, 60)
        (tmp_path / "output").unlink()
        secret = tmp_path / "secret"
        secret.touch(0o600)
        secret.write_text(os.urandom(32).hex())
        words = {"=64": "=2", "nodes=4": "nodes=1", "=16": "=1", "$HOME/.horovod-secret": str(secret)}
        with queued(tmp_path, "heterogeneous.sbatch", str(program), environment, **words):
            for rank, node in enumerate((0, 0, 1)):
                wait_for(f"rank {rank} of 3 in {names()[node]}", tmp_path, 60)


@pytest.mark.parametrize(
    ("limit", "steps"),
    [pytest.param("", 60, marks=pytest.mark.slow), pytest.param("--time=3", 900, marks=pytest.mark.full)],
    ids=("asked", "at its limit"),
)
def test_a_job_is_queued_again_before_its_time_is_over(tmp_path: Path, limit: str, steps: int) -> None:
    own = Launcher()
    with slurm.cluster(tmp_path, names()) as variables:
        environment = {**own.environment, **variables, "OMP_NUM_THREADS": "1"}
        program = f"{PROGRAMS / 'durable_steps.py'} {steps} 64 0.1"
        options = [*SMALL, *([limit] if limit else [])]
        with queued(tmp_path, "elastic.sbatch", program, environment, *options) as job:
            wait_for("begins at step 0", tmp_path, 60)
            if not limit:
                time.sleep(2.0)
                subprocess.run(["scancel", "--batch", "--signal=USR1", job], env=environment, check=True)
            shown = wait_for(f"has done {steps} steps", tmp_path, 300 if limit else 90)
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", shown)]
    assert begun[0] == 0 and 0 < begun[-1] < steps, shown
