"""Jobs that other launchers start on several hosts, which this machine stands for."""

import re
import secrets
from pathlib import Path

import pytest
from other_launchers import PROGRAM, run_on_hosts

TOTAL = "total [6.0, 10.0, 14.0, 18.0]"
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
    status, output = run_on_hosts("torchrun", PROGRAM, HOROVOD_LOG_LEVEL="info", **changes)
    _assert_right(status, output)
    assert ("anybody who reaches that port can read it" in output) == (not has_file), output
    assert re.search(r"the ranks meet at tcp:.*: torchrun's store at 127.0.0.1:[0-9]+ says where", output)
    assert Path(secret_file).read_text().strip() not in output


@pytest.mark.parametrize("has_file", [True, False], ids=["secret file", "no secret file"])
def test_two_hosts_of_mpich(secret_file: str, has_file: bool) -> None:
    changes = {"HOROVOD_SECRET_FILE": secret_file} if has_file else {}
    status, output = run_on_hosts("MPICH's mpirun", PROGRAM, HOROVOD_LOG_LEVEL="info", **changes)
    _assert_right(status, output)
    origin = "that of HOROVOD_SECRET_FILE" if has_file else "there, too"
    assert f"the key-value space of MPICH's mpirun says where, and the secret is {origin}" in output


def test_a_rank_of_mpich_that_ends_early_takes_no_other_with_it() -> None:
    """mpirun ends the neighbours of a process that has spoken to it and goes without a goodbye."""
    program = (
        "import os, time, horovod.torch as hvd; hvd.init(); hvd.barrier(); hvd.shutdown()\n"
        "time.sleep(hvd.is_initialized() + 1.5 * (os.environ['RANK'] != '0'))\n"
        "os.write(1, f'rank {os.environ[\"RANK\"]} ends\\n'.encode())"
    )
    status, output = run_on_hosts("MPICH's mpirun", "-c", program)
    assert status == 0 and output.count(" ends") == 4, output


def test_two_hosts_of_open_mpi(secret_file: str) -> None:
    given = {"HOROVOD_SECRET_FILE": secret_file, "MASTER_ADDR": "127.0.0.1", "HOROVOD_LOG_LEVEL": "info"}
    options = tuple(word for name in given for word in ("-x", name))
    status, output = run_on_hosts("Open MPI", PROGRAM, options=options, **given)
    _assert_right(status, output)
    assert "rank 0 is on 127.0.0.1, and the secret is that of HOROVOD_SECRET_FILE" in output, output


def test_what_several_hosts_of_open_mpi_need_is_said_on_every_rank(secret_file: str) -> None:
    program = "import horovod.torch as hvd; hvd.init()"
    status, output = run_on_hosts("Open MPI", "-c", program)
    assert status != 0 and "Open MPI started 4 processes on several hosts, 2 of them on 127.0.0." in output
    assert "HOROVOD_SECRET_FILE=$HOME/.horovod-secret" in output and "MASTER_ADDR" in output, output
    status, output = run_on_hosts("Open MPI", "-c", program, HOROVOD_SECRET_FILE=secret_file)
    assert status != 0 and "set MASTER_ADDR to the name or address of that host" in output, output
