"""horovodrun --mpi with the real Open MPI and MPICH, and --jsrun with a program in place of jsrun."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launch import PROGRAMS, Launcher, Result
from load import within
from other_launchers import AGENT, HOSTS, PROGRAM, mpirun_of

import horovod
from horovod.runner.nodes import guard

pytestmark = pytest.mark.slow  # how jobs of other launchers start is tried by test_launchers.py

MPIS = {"Open MPI": "Open MPI", "MPICH": "MPICH's mpirun"}
# Starts as many processes as its options say, with the variables of the real one.
JSRUN = """#!{python}
import os, subprocess, sys
options = dict(zip(sys.argv[1:], sys.argv[2:]))
size = int(options["--nrs"]) * int(options["--tasks_per_rs"])
print("options", *sys.argv[1:], flush=True)
command = sys.argv[sys.argv.index("none") + 1:]
names = ["JSM_NAMESPACE_" + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
def variables(rank):
    return dict(zip(names, map(str, (rank, size, rank, size))))
ranks = [subprocess.Popen(command, env=dict(os.environ, **variables(rank))) for rank in range(size)]
sys.exit(max(rank.wait() for rank in ranks))
"""


class Mpi:
    """Starts horovodrun --mpi where this MPI is the first on PATH."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.launcher = Launcher()
        self._path = f"{folder}:{os.environ['PATH']}"
        first = folder / "mpirun"
        first.write_text(f'#!/bin/sh\nexec {mpirun_of(MPIS[name])} "$@"\n')
        first.chmod(0o755)

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen[bytes]:
        """The job as it begins."""
        return self.launcher.start(
            "--mpi", *arguments, **{"PATH": self._path, "OMP_NUM_THREADS": "1", **changes}
        )

    def run(self, *arguments: str, **changes: str) -> Result:
        """A whole job, of which nothing is left."""
        result = self.launcher.finish(self.start(*arguments, **changes), 90)
        self.launcher.wait_until_gone(2.0)
        return result


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest, tmp_path: Path) -> Mpi:
    """Each MPI in turn."""
    return Mpi(request.param, tmp_path)


def script(text: str) -> list[str]:
    rank = "rank = int(os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK'])\n"
    return [sys.executable, "-c", f"import os, sys, time, signal\n{rank}{text}"]


def test_the_ranks_are_those_of_mpi(mpi: Mpi, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    options = ["-np", "3", "--output-filename", str(folder), "--verbose", "--log-level", "info"]
    output = (result := mpi.run(*options, PROGRAM, HOROVOD_RANK="9", RANK="9", HOROVOD_STORE_ADDR="x")).output
    assert result.returncode == 0, output
    for rank in range(3):
        line = f"places {[rank, 3, rank, 3, 0, 1]} total [3, 6, 9, 12]\n"
        assert f"[{rank}]<stdout>:{line}" in output, output
        assert (folder / f"rank.{rank}" / "stdout").read_text() == line
    assert f"horovodrun: {mpi.name} " in output and "started this job" in output


def test_output_keeps_every_byte(mpi: Mpi) -> None:
    text = "os.write(1, b'\\xff\\xfe\\x00raw\\r\\n\\n[1 ha'); time.sleep(0.1)\n"
    text += (
        "os.write(1, b'lf [ tags ]<\\n' + b'x' * 100000 + b'\\nend'); print('err', rank, file=sys.stderr)\n"
    )
    result = mpi.run("-np", "2", *script(text))
    expected = [b"\xff\xfe\x00raw\r", b"", b"[1 half [ tags ]<", b"x" * 100000, b"end"]
    for rank in range(2):
        prefix = b"[%d]<stdout>:" % rank
        lines = result.stdout.split(b"\n")
        assert [line.removeprefix(prefix) for line in lines if line.startswith(prefix)] == expected
        assert b"[%d]<stderr>:err %d\n" % (rank, rank) in result.stderr
    assert result.returncode == 0 and result.stdout.count(b"\n") == 9


def test_the_ranks_are_on_several_hosts(mpi: Mpi, tmp_path: Path) -> None:
    """This machine stands for them; a program stands for ssh."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("5e" * 32)
    hosts = ",".join(f"{host}:2" for host in HOSTS)
    agents = {"Open MPI": f"--mca plm_rsh_agent {AGENT}", "MPICH": f"-launcher ssh -launcher-exec {AGENT}"}
    options = ["-np", "4", "-H", hosts, f"--mpi-args={agents[mpi.name]}", "-x", "SEED=7"]
    result = mpi.run(*options, "--log-level", "info", PROGRAM, HOROVOD_SECRET_FILE=str(secret))
    assert result.returncode == 0 and "4 ranks on 2 hosts" in result.output, result.output
    for rank in range(4):
        places = [rank, 4, rank % 2, 2, rank // 2, 2]
        assert f"[{rank}]<stdout>:places {places} total [6, 10, 14, 18]" in result.output


@pytest.mark.parametrize(("end", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failed_rank_gives_its_status(mpi: Mpi, end: str, status: int) -> None:
    # MPICH lets a rank go on that another has left with a status of its own.
    text = f"print('last words', rank, file=sys.stderr)\nrank == 1 and {end}\ntime.sleep(10)"
    output = (result := mpi.run("-np", "2", *script(text))).output
    assert result.returncode == status, output
    if mpi.name == "Open MPI":
        assert "horovodrun: rank 1 (localhost) failed first" in output and "  last words 1" in output
    else:
        assert "horovodrun: the job cannot go on; the job's status is" in output, output
        assert "horovodrun: MPICH" in output and "does not tell which rank failed" in output
        assert "horovodrun: host" not in output and "ended with an error" not in output
    assert f"the job's status is {status}" in output


def test_a_rank_that_leaves_early_is_named_and_not_those_who_raise_for_it(mpi: Mpi) -> None:
    text = (
        "from horovod.common import basics as hvd\n"
        "from horovod.common.collective.byte_objects import objects\n"
        "hvd.init()\n"
        "rank == 1 or objects.allgather_object(rank)"
    )
    output = (result := mpi.run("-np", "3", *script(text))).output
    assert result.returncode == 1, output
    assert re.search(r"horovodrun: rank 1 \(\S+\) left the job too early; the job's status is 1", output), (
        output
    )


def test_a_stopped_rank_is_named_by_those_who_wait_for_it(mpi: Mpi, tmp_path: Path) -> None:
    """The launcher names one of these."""
    process = mpi.start("-np", "3", sys.executable, str(PROGRAMS / "at_work.py"), str(tmp_path))
    deadline = time.monotonic() + within(60)
    while len(files := [*tmp_path.glob("rank.*")]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pids = {file.suffix: int(file.read_text()) for file in files}
    os.kill(pids[".1"], signal.SIGSTOP)
    result = mpi.launcher.finish(process, 40)
    assert result.returncode == 1, result.output
    assert "horovodrun: rank 1 (localhost) stopped responding; the job's status is 1" in result.output
    assert f"horovodrun: rank 1 (pid {pids['.1']}) has not responded for " in result.output
    mpi.launcher.wait_until_gone(2.0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_everything(mpi: Mpi, number: signal.Signals, status: int) -> None:
    process = mpi.start("-np", "2", *script("print('here', flush=True)\ntime.sleep(60)"))
    assert process.stdout is not None and b"here" in process.stdout.readline()
    process.send_signal(number)
    result = mpi.launcher.finish(process, 20)
    assert result.returncode == status
    mpi.launcher.wait_until_gone(2.0)


def test_a_paused_job_pauses_its_ranks_and_goes_on(mpi: Mpi, tmp_path: Path) -> None:
    text = "open(os.path.join(sys.argv[1], f'pid.{os.getpid()}'), 'w').close(); time.sleep(600)"
    process = mpi.start("-np", "2", *script(text), str(tmp_path))
    deadline = time.monotonic() + within(30)
    while len(pids := [int(file.suffix[1:]) for file in tmp_path.glob("pid.*")]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for number, are_stopped in ((signal.SIGTSTP, True), (signal.SIGCONT, False)):
        process.send_signal(number)
        while any((psutil.Process(pid).status() == "stopped") != are_stopped for pid in pids):
            assert time.monotonic() < deadline, number
            time.sleep(0.05)
    process.terminate()
    assert mpi.launcher.finish(process, 30).returncode == 143
    mpi.launcher.wait_until_gone(2.0)


@pytest.mark.parametrize("victim", ["horovodrun", "mpirun"])
def test_nothing_is_left_when_a_launcher_is_killed(mpi: Mpi, victim: str) -> None:
    process = mpi.start("-np", "2", *script("print('here', flush=True)\ntime.sleep(60)"))
    assert process.stdout is not None and b"here" in process.stdout.readline()
    if victim == "horovodrun":
        process.kill()
    else:
        parents = {each.pid: each.parent for each in guard.processes()}
        own = [pid for pid in mpi.launcher.survivors() if parents.get(pid) == process.pid]
        assert len(own) == 1, mpi.launcher.census()
        os.kill(own[0], signal.SIGKILL)
    result = mpi.launcher.finish(process, 20)
    mpi.launcher.wait_until_gone(5.0)
    if victim == "mpirun":
        assert result.returncode == 137 and "itself was killed by signal 9" in result.output


def test_no_secret_is_in_a_command_line(mpi: Mpi) -> None:
    text = (
        "print('here', os.environ['TOKEN'], os.environ.get('HOROVOD_SECRET_KEY'), flush=True)\ntime.sleep(2)"
    )
    process = mpi.start(
        "-np", "2", "-x", "TOKEN", *script(text), TOKEN="planted", HOROVOD_SECRET_KEY="00planted"
    )
    assert process.stdout is not None
    assert process.stdout.readline().endswith(b"here planted None\n")
    assert not [line for line in mpi.launcher.census() if "planted" in line]
    assert mpi.launcher.finish(process, 20).returncode == 0


def test_timestamps_and_chosen_ranks(mpi: Mpi) -> None:
    options = ["-np", "3", "--ranks", "1", "--prefix-output-with-timestamp"]
    result = mpi.run(*options, *script("print('word', rank)"))
    lines = [line for line in result.output.splitlines() if "word" in line]
    assert result.returncode == 0 and len(lines) == 1 and lines[0].endswith("[1]<stdout>:word 1")
    assert time.strptime(lines[0].removesuffix("[1]<stdout>:word 1"))


def test_without_an_mpirun_the_remedy_is_said(tmp_path: Path) -> None:
    for name, said in (("mpirun", "is none of Open MPI"), ("other", "there is no mpirun on PATH")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("#!/bin/sh\necho hello\n")
        (folder / name).chmod(0o755)
        status, stdout, stderr = Launcher().run("--mpi", "-np", "1", *script("pass"), PATH=str(folder))
        assert (status, stdout) == (2, b"") and said in stderr.decode(), stderr


def test_a_function_is_no_program() -> None:
    with pytest.raises(ValueError, match="use_mpi: it can start a program, and no function; use use_gloo"):
        horovod.run(os.getpid, use_mpi=True)


def test_jsrun_runs_the_ranks(tmp_path: Path) -> None:
    jsrun = tmp_path / "jsrun"
    jsrun.write_text(JSRUN.format(python=sys.executable))
    jsrun.chmod(0o755)
    changes = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LSB_JOBID": "1", "LSB_MCPU_HOSTS": "n1 3"}
    launcher = Launcher()
    process = launcher.start(PROGRAM, **changes, OMP_NUM_THREADS="1")
    result = launcher.finish(process, 90)
    assert result.returncode == 0, result.output
    assert "--nrs 1 --rs_per_host 1 --tasks_per_rs 3 --cpu_per_rs ALL_CPUS" in result.output
    for rank in range(3):
        assert f"places {[rank, 3, rank, 3, 0, 1]} total" in result.output, result.output
