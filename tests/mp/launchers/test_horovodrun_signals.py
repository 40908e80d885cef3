"""Signals to horovodrun, and the processes that it ends."""

import contextlib
import os
import shlex
import signal
import time
from pathlib import Path

import pytest
from launch import MODULE, Launcher
from load import within
from rank_scripts import lines_of, rank_script, read_until, until

from horovod.runner.nodes import guard


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_reaches_every_rank_and_ends_the_job(job: Launcher, number: int, status: int) -> None:
    script = rank_script(
        "def stop(number, frame):\n    print('got', number); sys.exit(0)\n"
        f"signal.signal({int(number)}, stop); print('ready'); time.sleep(60)"
    )
    process = job.start("-np", "2", *script)
    read_until(process, b"ready", 2)
    begin = time.monotonic()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=within(10))
    assert process.returncode == status and time.monotonic() - begin < within(4)
    assert stdout.count(b"got %d\n" % number) == 2 and b"failed" not in stderr


def test_second_interrupt_kills_at_once(job: Launcher) -> None:
    script = rank_script("signal.signal(2, lambda *_: print('heard'))\nprint('ready'); time.sleep(60)")
    process = job.start("-np", "2", *script)
    read_until(process, b"ready", 2)
    process.send_signal(signal.SIGINT)
    read_until(process, b"heard", 2)  # two at once may be one
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=within(10))
    assert process.returncode == 130 and time.monotonic() - begin < within(4)


def test_user_signals_are_passed_on(job: Launcher) -> None:
    script = rank_script(
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1'))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))\n"
        "print('ready')\nwhile True: time.sleep(1)"
    )
    process = job.start("-np", "2", *script)
    read_until(process, b"ready", 2)
    process.send_signal(signal.SIGUSR1)
    read_until(process, b"usr1", 2)
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=within(10))
    assert process.returncode == 0


def test_stop_and_continue_reach_the_ranks(job: Launcher, tmp_path: Path) -> None:
    script = "print('pid', os.getpid())\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"
    process = job.start("-np", "2", *rank_script(script), str(tmp_path / "go"))
    lines = read_until(process, b"pid", 2).splitlines()
    pids = [int(line.split()[-1]) for line in lines]

    def states() -> set[str]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
        return {text.rpartition(")")[2].split()[0] for text in stats}

    process.send_signal(signal.SIGTSTP)
    until(lambda: states() == {"T"}, states)
    process.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    process.communicate(timeout=within(10))
    assert process.returncode == 0


def test_a_job_that_is_to_go_on_before_it_has_stopped_goes_on(job: Launcher, tmp_path: Path) -> None:
    script = "print('pid', os.getpid())\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"
    process = job.start("-np", "2", *rank_script(script), str(tmp_path / "go"))
    read_until(process, b"pid", 2)
    for pause in (0.0, 0.001, 0.003, 0.01, 0.03):
        process.send_signal(signal.SIGTSTP)
        time.sleep(pause)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    (tmp_path / "go").touch()
    process.communicate(timeout=within(10))
    assert process.returncode == 0


def test_killed_launcher_leaves_nothing(job: Launcher) -> None:
    script = rank_script(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import subprocess\n"
        "subprocess.Popen(['sleep', '60'])\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print('ready'); time.sleep(60)"
    )
    process = job.start("-np", "2", *script)
    read_until(process, b"ready", 2)
    # A process shows no environment in the moment in which it starts a program.
    until(lambda: len(job.census()) == 7, job.census)
    children = {child.pid for child in guard.processes() if child.parent == process.pid}
    assert len(children) == 3  # the guard and the ranks
    process.kill()
    process.wait()
    job.wait_until_gone(3.0)
    until(lambda: not children & {child.pid for child in guard.processes()}, job.census)
    process.communicate()


def _guard_of(launcher: int) -> int:
    """Its process, or 0."""
    for process in guard.processes():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            if process.parent == launcher and guard.__file__.encode() in command:
                return process.pid
    return 0


def test_a_guard_that_somebody_has_ended_is_told_and_replaced(job: Launcher) -> None:
    process = job.start("-np", "2", *rank_script("print('ready', flush=True); time.sleep(60)"))
    read_until(process, b"ready", 2)
    first = _guard_of(process.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: _guard_of(process.pid) not in (0, first), job.census)
    second = _guard_of(process.pid)
    process.kill()
    said = process.communicate(timeout=within(10))[1]
    assert b"process %d, which would end the ranks" % first in said
    assert b"process %d has taken its place" % second in said
    job.wait_until_gone(3.0)


def test_guards_that_are_ended_all_the_time_are_given_up(job: Launcher) -> None:
    process = job.start(
        "-np", "2", *rank_script("print('ready', flush=True); sys.stdin.read(); time.sleep(4)")
    )
    read_until(process, b"ready", 2)
    seen: set[int] = set()
    while process.poll() is None:
        if (pid := _guard_of(process.pid)) and pid not in seen:
            seen.add(pid)
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    stderr = process.communicate(timeout=within(20))[1]
    assert process.returncode == 0 and len(seen) == 10
    assert b"there is no other one: 10 have been ended by now" in stderr


def test_a_stopped_guard_does_not_hold_up_the_end(job: Launcher) -> None:
    process = job.start("-np", "1", *rank_script("print('ready', flush=True); time.sleep(2)"))
    read_until(process, b"ready", 1)
    pid = _guard_of(process.pid)
    os.kill(pid, signal.SIGSTOP)
    assert job.finish(process, 20).returncode == 0
    assert guard.look_at(pid) is None


def test_daemons_of_the_ranks_are_ended(job: Launcher) -> None:
    script = rank_script(
        "here, there = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN); print('daemon'); os.write(there, b'!')\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.read(here, 1)"
    )
    begin = time.monotonic()
    status, stdout, _ = job.run("-np", "2", *script)
    assert status == 0 and stdout.count(b"daemon") == 2 and time.monotonic() - begin < within(5)
    assert job.census() == []


def test_children_of_the_shell_that_became_the_launcher_are_none_of_the_jobs(
    job: Launcher, tmp_path: Path
) -> None:
    """bash replaces itself by its last command, which inherits the readers of its process substitutions."""
    out, err = tmp_path / "out", tmp_path / "err"
    ranks = shlex.join([*MODULE, "-np", "2", "sh", "-c", "seq 1 20000; echo why >&2"])
    readers = f"> >(sleep 2; cat > {out}) 2> >(sleep 2; (sleep 1; tee {err} >&2))"
    shell = job.popen(["bash", "-c", f"(sleep 3 &); sleep 3 & exec {ranks} {readers}"])
    assert job.finish(shell, 30).returncode == 0
    until(lambda: err.exists() and err.read_bytes().count(b"why") == 2, job.census)
    assert sorted(map(int, lines_of(1, "stdout", out.read_bytes()))) == list(range(1, 20001))
    job.wait_until_gone(5.0)
