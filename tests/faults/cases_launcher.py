"""Layer L: signals, the end of the launcher, and what it is told."""

import resource
import signal
import subprocess
import time

from fault_case import case, elsewhere
from launch import MODULE
from load import within
from stage import Stage
from trial import Trial


@case(70, "L", "Ctrl-C once", limit=7.0, quick=True)
def interrupt(stage: Stage) -> None:
    job = stage.job(3, "process:train")
    job.running()
    job.signal_launcher(signal.SIGINT)
    stage.fails(job, 130, "")


@case(71, "L", "Ctrl-C twice, on ranks that ignore it", limit=2.0)
def interrupt_twice(stage: Stage) -> None:
    job = stage.job(3, "signals:deaf")
    job.running()
    job.signal_launcher(signal.SIGINT)
    time.sleep(0.3)
    job.signal_launcher(signal.SIGINT)
    stage.fails(job, 130, "")


@case(72, "L", "SIGTERM to the launcher", limit=7.0)
def terminate(stage: Stage) -> None:
    job = stage.job(3, "signals:polite")
    job.running()
    job.signal_launcher(signal.SIGTERM)
    stage.fails(job, 143, "", *(rf"rank {rank} got signal 15" for rank in range(3)))


@case(73, "L", "SIGKILL to the launcher", limit=3.0, quick=True)
def launcher_killed(stage: Stage) -> None:
    for scene in ("process:train", "signals:deaf"):
        _ends_with_its_launcher(stage, stage.job(3, scene))


def _ends_with_its_launcher(stage: Stage, job: Trial) -> None:
    job.running()
    family = job.family()
    job.kill(job.process.pid)
    stage.gone(job, family)


@case(74, "L", "SIGHUP, no terminal, no standard input", limit=7.0)
def hang_up(stage: Stage) -> None:
    job = stage.job(3, "process:train")
    job.running()
    job.signal_launcher(signal.SIGHUP)
    stage.fails(job, 129, "")
    ignores = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    job = stage.job(2, "process:train", 300, wrap=ignores)
    job.running()
    job.process.send_signal(signal.SIGHUP)
    stage.succeeds(job)
    stage.succeeds(stage.job(2, "process:train", 30, wrap=["setsid", "--wait"]))
    stage.succeeds(stage.job(2, "process:train", 30, wrap=["sh", "-c", 'exec "$@" <&-', "sh"]))


@case(75, "L", "children that ignore SIGTERM, in sessions of their own", limit=7.0)
def daemons(stage: Stage) -> None:
    job = stage.job(2, "signals:children", "loud")
    job.running()
    family = job.family()
    job.signal_launcher(signal.SIGINT)
    stage.fails(job, 130, "")
    stage.gone(job, family)
    _ends_with_its_launcher(stage, stage.job(2, "signals:children", "silent"))


@case(76, "L", "SIGUSR1, SIGUSR2, stop and continue", limit=1.0)
def forwarded(stage: Stage) -> None:
    job = stage.job(2, "signals:counts_signals")
    job.running()
    job.process.send_signal(signal.SIGUSR1)
    job.wait_for("got SIGUSR1", 2)
    job.process.send_signal(signal.SIGTSTP)
    time.sleep(0.5)
    job.process.send_signal(signal.SIGCONT)
    job.signal_launcher(signal.SIGUSR2)
    stage.succeeds(job)
    stage.seconds = job.seconds


def _refused(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command that should end at once, with little memory, in case it does not."""
    little = 2 << 30
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=within(5),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (little, little)),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{command[3:]} was not refused") from None


@case(80, "L", "wrong arguments", limit=1.0)
def wrong_arguments(stage: Stage) -> None:
    for arguments, hint in (
        (["-np", "0", "true"], "-np 0"),
        (["-np", "3", "-H", "localhost:2", "true"], "slots"),
        (["-np", "1000000000", "true"], "1000000000"),
        (["-np", "two", "true"], "two"),
        (["-np", "2", "--cycle-time-ms", "soon", "true"], "soon"),
        (["-np", "2", "--fancy", "true"], "--fancy"),
        (["-np", "2"], "command"),
    ):
        begin = time.monotonic()
        done = _refused([*MODULE, *arguments])
        stage.seconds = max(stage.seconds or 0.0, time.monotonic() - begin)
        assert done.returncode == 2, (arguments, done)
        assert done.stderr.count("\n") == 1 and hint in done.stderr, (arguments, done.stderr)


elsewhere(77, "L", "ssh refuses, asks, is slow or noisy", "several hosts")
elsewhere(78, "L", "a host has another Python, version or machine", "several hosts")
elsewhere(82, "L", "the scheduler announces the end of the time", "a scheduler, and elastic training")

for number, title in {
    83: "one rank of many is killed, at each phase",
    84: "a rank is killed during the recovery from another's death",
    85: "the rank with the newest state is killed",
    87: "a job grows and shrinks at once",
    88: "the script that lists hosts misbehaves",
    90: "the driver dies",
    91: "ranks crash again and again",
    92: "a state that cannot be saved",
    93: "a sampler after the number of ranks has changed",
}.items():
    elsewhere(number, "E", title, "elastic training")
