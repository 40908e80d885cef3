"""Layer R: what a job lacks."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from fault_case import NotHere, case
from stage import Stage

BOTH = ("shm", "tcp")


def private_mounts(script: str) -> list[str]:
    """A command in front of another: it runs in a mount namespace of its own, after ``script``."""
    if not can_run(["unshare", "-m", "true"]):
        raise NotHere("needs a mount namespace of its own")
    return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh"]


def can_run(command: list[str]) -> bool:
    """Whether a command is there and ends well."""
    return bool(shutil.which(command[0])) and not subprocess.run(command, capture_output=True).returncode


def limited(*limits: str) -> list[str]:
    """A command in front of another: it runs with these limits."""
    if not shutil.which("prlimit"):
        raise NotHere("needs prlimit")
    return ["prlimit", *limits]


@case(63, "R", "/dev/shm is full, read-only or absent", quick=True)
def no_shared_memory(stage: Stage) -> None:
    small = "mount -t tmpfs -o size=4k none"
    for script in (
        f"{small} /dev/shm && (head -c 8k /dev/zero >/dev/shm/x 2>/dev/null; true)",
        "mount -t tmpfs -o ro none /dev/shm",
        f"{small} /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9",
    ):
        stage.succeeds(stage.job(3, "resource_use:work", 0.5, wrap=private_mounts(script)))


@case(64, "R", "the disk is full for output files and the timeline")
def disk_full(stage: Stage) -> None:
    script = "mount -t tmpfs -o size=64k none /mnt"
    options = ["--output-filename", "/mnt/logs", "--timeline-filename", "/mnt/timeline.json"]
    job = stage.job(2, "resource_use:talk", 300, options=options, wrap=private_mounts(script))
    stage.succeeds(job, "No space left|disk (is )?full|cannot write")
    warnings = [line for line in job.output.splitlines() if "No space left" in line]
    assert len(warnings) <= 8, f"{len(warnings)} warnings:\n{job.output[-4000:]}"


@case(65, "R", "few descriptors, little locked memory, a small stack")
def limits(stage: Stage) -> None:
    for limit in ("--nofile=64", "--memlock=65536", "--stack=1048576"):
        for transport in BOTH:
            job = stage.job(
                3, "resource_use:work", 0.5, wrap=limited(limit), env={"HOROVOD_TRANSPORT": transport}
            )
            stage.succeeds(job)


@case(67, "R", "eight ranks on one core that other work keeps busy")
def one_core(stage: Stage) -> None:
    if not shutil.which("taskset"):
        raise NotHere("needs taskset")
    core = min(os.sched_getaffinity(0))
    pin = ["taskset", "-c", str(core)]
    busy = [subprocess.Popen([*pin, sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        job = stage.job(8, "resource_use:work", 10, wrap=pin)
        stage.succeeds(job, timeout=200)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert "not responded" not in job.output, job.output


@case(68, "R", "all ranks are frozen together for longer than a peer may be silent")
def frozen_together(stage: Stage) -> None:
    env = {"HOROVOD_HEARTBEAT_SECONDS": "0.5", "HOROVOD_PEER_TIMEOUT_SECONDS": "2"}
    job = stage.job(3, "resource_use:work", 8, env=env)
    job.send(signal.SIGSTOP, 0, 1, 2)
    time.sleep(5)
    job.send(signal.SIGCONT, 0, 1, 2)
    stage.succeeds(job)


@case(69, "R", "no home, no room for temporary files, no working folder, no locale, no name for the user")
def bare_surroundings(stage: Stage) -> None:
    stage.succeeds(
        stage.job(2, "resource_use:work", 0.3, env={"HOME": "/proc/none", "LANG": "C", "LC_ALL": "C"})
    )
    stage.succeeds(stage.job(2, "resource_use:work", 0.3, env={"HOME": "", "LC_ALL": "xx_YY.ISO-8859-1"}))
    stage.succeeds(stage.job(2, "resource_use:work", 0.3, env={"TMPDIR": "/proc/none"}))
    full = private_mounts(
        "mount -t tmpfs -o size=4k none /mnt && (head -c 8k /dev/zero >/mnt/x 2>/dev/null; true)"
    )
    stage.succeeds(stage.job(2, "resource_use:work", 0.3, env={"TMPDIR": "/mnt"}, wrap=full))
    stranger = ["unshare", "--user", "--map-user=54321"]
    if can_run([*stranger, sys.executable, "-c", "import horovod"]):
        env = {"TMPDIR": "/tmp", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
        stage.succeeds(stage.job(2, "resource_use:work", 0.3, env=env, wrap=stranger))
    folder = Path(stage.folder()) / "goes"
    folder.mkdir()
    stage.succeeds(stage.job(2, "resource_use:in_a_deleted_folder", folder))
