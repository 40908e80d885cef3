"""Jobs that other launchers start on several hosts, which this machine stands for."""

import importlib.util
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import slurm
from launch import PROGRAMS, ROOT, Launcher
from other_launchers import PROGRAM, REAL, mpich_for_mpi4py, run_on_hosts

from horovod.bootstrap import libraries

pytestmark = pytest.mark.slow  # how jobs of other launchers start is tried by test_launchers.py

TUTORIAL = str(ROOT / "examples" / "torch_tutorial.py")
TRAINING = str(PROGRAMS / "short_training.py")

TOTAL = "total [6, 10, 14, 18]"
TORCH = {True: ("torch",), False: ()}  # torch.distributed is compared, too
PLACES = [[rank, 4, rank % 2, 2, rank // 2, 2] for rank in range(4)]


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    """As the user makes one."""
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text(secrets.token_hex(32) + "\n")
    return str(path)


def _assert_right(status: int, output: str) -> None:
    assert status == 0, output
    for places in PLACES:
        assert f"places {places} {TOTAL}" in output, output
    assert "4 ranks on 2 hosts" in output and "TCP between hosts" in output, output


@pytest.mark.parametrize("has_file", [True, False], ids=["secret file", "no secret file"])
def test_two_nodes_of_torchrun(secret_file: str, has_file: bool) -> None:
    changes = {"HOROVOD_SECRET_FILE": secret_file} if has_file else {}
    status, output = run_on_hosts("torchrun", PROGRAM, *TORCH[has_file], HOROVOD_LOG_LEVEL="info", **changes)
    _assert_right(status, output)
    assert ("anybody who reaches that port can read it" in output) == (not has_file), output
    assert re.search(r"the ranks meet at tcp:.*: torchrun's store at 127.0.0.1:[0-9]+ says where", output)
    assert Path(secret_file).read_text().strip() not in output


@pytest.mark.parametrize("has_file", [True, False], ids=["secret file", "no secret file"])
def test_two_hosts_of_mpich(secret_file: str, has_file: bool) -> None:
    changes = {"HOROVOD_SECRET_FILE": secret_file} if has_file else {}
    status, output = run_on_hosts(
        "MPICH's mpirun", PROGRAM, *TORCH[has_file], HOROVOD_LOG_LEVEL="info", **changes
    )
    _assert_right(status, output)
    origin = "that of HOROVOD_SECRET_FILE" if has_file else "there, too"
    assert f"the key-value space (PMI) of the launcher says where, and the secret is {origin}" in output


def test_a_rank_of_mpich_that_ends_early_takes_no_other_with_it() -> None:
    """mpirun ends the neighbours of a process that has spoken to it and goes without a goodbye."""
    program = (
        "import os, time, plain_horovod as hvd; hvd.init(); hvd.barrier(); hvd.shutdown()\n"
        "time.sleep(hvd.is_initialized() + 1.5 * (os.environ['RANK'] != '0'))\n"
        "os.write(1, f'rank {os.environ[\"RANK\"]} ends\\n'.encode())"
    )
    status, output = run_on_hosts("MPICH's mpirun", "-c", program)
    assert status == 0 and output.count(" ends") == 4, output


def test_two_hosts_of_open_mpi(secret_file: str) -> None:
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1", "HOROVOD_LOG_LEVEL": "info"}
    options = tuple(word for name in given for word in ("-x", name))
    status, output = run_on_hosts("Open MPI", PROGRAM, "torch", options=options, **given)
    _assert_right(status, output)
    assert "rank 0 is on 127.0.0.1, and the secret is that of HOROVOD_SECRET_FILE" in output, output


@pytest.mark.skipif(not libraries.built("mpi"), reason="horovod was built without MPI")
def test_mpi_carries_address_and_secret_between_hosts() -> None:
    given = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_LOG_LEVEL": "info"}
    # Its shared memory mixes up two hosts that are one machine: it crashes there without us, too.
    options = ("--mca", "btl", "tcp,self", *(word for name in given for word in ("-x", name)))
    status, output = run_on_hosts("Open MPI", PROGRAM, options=options, **given)
    _assert_right(status, output)
    assert "MPI says where, and the secret is there, too" in output, output


def test_what_several_hosts_of_open_mpi_need_is_said_on_every_rank(secret_file: str) -> None:
    program = "import plain_horovod as hvd; hvd.init()"
    status, output = run_on_hosts("Open MPI", "-c", program)
    assert status != 0 and "Open MPI started 4 processes on several hosts, 2 of them on 127.0.0." in output
    assert "HOROVOD_SECRET_FILE=$HOME/.horovod-secret" in output and "MASTER_ADDR" in output, output
    status, output = run_on_hosts("Open MPI", "-c", program, HOROVOD_SECRET_FILE=secret_file)
    assert status != 0 and "set MASTER_ADDR to the name or address of that host" in output, output


@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "it is here")
def test_two_nodes_of_slurm(secret_file: str, tmp_path: Path) -> None:
    own = Launcher()
    # The first of them is the name of this machine, which leads others to rank 0.
    name = os.uname().nodename.partition(".")[0]
    with slurm.cluster(tmp_path, [name, f"{name}-second"]) as variables:
        environment = {**own.environment, **variables, "OMP_NUM_THREADS": "1", "HOROVOD_LOG_LEVEL": "info"}
        step = ["srun", "--nodes", "2", "--ntasks", "4", "--overcommit", "--kill-on-bad-exit"]

        def run(plugin: str, program: str, **changes: str) -> tuple[int, str]:
            command = [*step, f"--mpi={plugin}", sys.executable, program]
            job = own.popen(command, env={**environment, **changes}, stderr=subprocess.STDOUT)
            result = own.finish(job, 90)
            return result.returncode, result.output

        by_name = run("none", PROGRAM, HOROVOD_SECRET_FILE=secret_file)
        by_pmi = run("pmi2", PROGRAM)
        training = run("pmi2", TRAINING)
        without = run("none", PROGRAM)
    own.wait_until_gone(10)
    _assert_right(*by_name)
    assert f"rank 0 is on {name}, and the secret is that of HOROVOD_SECRET_FILE" in by_name[1], by_name[1]
    _assert_right(*by_pmi)
    assert "the key-value space (PMI) of the launcher says where" in by_pmi[1], by_pmi[1]
    assert training[0] == 0 and training[1].count("steps are exact") == 4, training[1]
    assert without[0] != 0 and "srun started 4 processes on several hosts, 2 of them on " in without[1]
    assert f"{name}-second, and offers no way to give them a secret" in without[1], without[1]


@pytest.mark.parametrize("launcher", ["jsrun", "Spectrum MPI", "MVAPICH2", "Intel MPI"])
def test_two_hosts_of_launchers_that_are_stood_in_for(secret_file: str, launcher: str) -> None:
    changes = {"HOROVOD_SECRET_FILE": secret_file, "HOROVOD_JOB_ID": secret_file, "HOROVOD_LOG_LEVEL": "info"}
    if launcher != "jsrun":
        changes["MASTER_ADDR"] = "localhost"
    status, output = run_on_hosts(launcher, PROGRAM, **changes)
    _assert_right(status, output)
    name = {"Spectrum MPI": "Open MPI", "Intel MPI": "MPICH's mpirun"}.get(launcher, launcher)
    assert f"{name} started this job" in output, output


def test_pods_of_an_indexed_job(secret_file: str) -> None:
    changes = {"HOROVOD_SECRET_FILE": secret_file, "HOROVOD_JOB_ID": secret_file, "MASTER_ADDR": "localhost"}
    status, output = run_on_hosts("an indexed Job", PROGRAM, "torch", **changes)
    assert status == 0, output
    for rank in range(4):
        assert f"places {[rank, 4, 0, 1, rank, 4]} {TOTAL}" in output, output


def usually(one: str) -> pytest.MarkDecorator:
    """The others start the same ranks in the tests above, and train in make test-full."""
    rest = [pytest.param(each, marks=pytest.mark.full) for each in REAL if each != one]
    return pytest.mark.parametrize("launcher", [one, *rest])


@usually("Open MPI")
def test_training_on_two_hosts_is_that_of_one_process(secret_file: str, launcher: str) -> None:
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1"}
    options = tuple(word for name in given if launcher == "Open MPI" for word in ("-x", name))
    status, output = run_on_hosts(launcher, TRAINING, options=options, **given)
    assert status == 0 and output.count("20 steps are exact") == 4, output


@pytest.mark.full  # the steps above are exact, and the tutorial learns in test_examples.py
@pytest.mark.parametrize("launcher", REAL)
def test_the_tutorial_learns_on_two_hosts(secret_file: str, launcher: str) -> None:
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1"}
    options = tuple(word for name in given if launcher == "Open MPI" for word in ("-x", name))
    status, output = run_on_hosts(launcher, TUTORIAL, "--epochs", "2", options=options, **given)
    found = re.findall(r"training accuracy ([0-9.]+)%", output)
    assert status == 0 and len(found) == 2 and float(found[1]) > 80, output


@pytest.mark.parametrize("launcher", REAL)
def test_secrets_are_in_no_command_line_log_or_error(secret_file: str, launcher: str) -> None:
    password = secrets.token_hex(16)
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1", "DB_PASSWORD": password}
    given["HOROVOD_LOG_LEVEL"] = "trace"
    options = tuple(word for name in given if launcher == "Open MPI" for word in ("-x", name))
    program = str(PROGRAMS / "shows_no_secret.py")
    status, output = run_on_hosts(launcher, program, secret_file, options=options, **given)
    assert status != 0 and output.count("looked") == 4 and "ZeroDivisionError" in output, output
    for secret in (password, Path(secret_file).read_text().strip()):
        assert secret not in output, output


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed here")
@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("launcher", ["MPICH's mpirun", "Open MPI"])
def test_mpi_in_the_same_job_agrees(secret_file: str, tmp_path: Path, launcher: str, order: str) -> None:
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1"}
    options: tuple[str, ...] = ()
    if launcher == "Open MPI":
        # Its shared memory mixes up two hosts that are one machine: it crashes there without us, too.
        options = ("--mca", "btl", "tcp,self", *(word for name in given for word in ("-x", name)))
    else:
        given = mpich_for_mpi4py(tmp_path)
    status, output = run_on_hosts(launcher, str(PROGRAMS / "with_mpi4py.py"), order, options=options, **given)
    assert status == 0 and output.count("agrees") == 4, output
