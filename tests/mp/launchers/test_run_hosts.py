"""horovod.run on three "hosts" by a real sshd."""

import json
import os
import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import sshd
from launch import PROGRAMS, Launcher

import horovod
from horovod.runner.call.packing import RemoteTraceback

HOSTS = ",".join(f"{host}:1" for host in sshd.HOSTS)
pytestmark = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Ssh]:
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def on_hosts(ssh: sshd.Ssh, monkeypatch: pytest.MonkeyPatch) -> dict:
    """The arguments that lead there."""
    for name, value in ssh.environment.items():
        monkeypatch.setenv(name, value)
    key = str(ssh.folder / "user")
    return {"num_proc": 3, "hosts": HOSTS, "ssh_port": ssh.port, "ssh_identity_file": key}


def host_and_sum(values: np.ndarray) -> tuple:
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    hvd.init()
    total = sum(objects.allgather_object(values * (hvd.rank() + 1)))
    print("on", os.environ["HOROVOD_HOSTNAME"])
    return os.environ["HOROVOD_HOSTNAME"], hvd.cross_rank(), total


def end_on_the_last(how: str) -> None:
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import operations

    hvd.init()
    if hvd.rank() == 2:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise LookupError(how)
    operations.barrier()


def test_a_function_runs_on_all_hosts(on_hosts, capsys):
    values = np.random.default_rng().standard_normal(3 << 20)  # 24 MiB
    results = horovod.run(host_and_sum, (values,), **on_hosts)
    assert [result[:2] for result in results] == [(host, n) for n, host in enumerate(sshd.HOSTS)]
    for _, _, total in results:
        np.testing.assert_allclose(total, values * 6)
    shown = capsys.readouterr().out
    assert sorted(shown.splitlines()) == [f"[{n}]<stdout>:on {host}" for n, host in enumerate(sshd.HOSTS)]


@pytest.mark.slow
def test_what_a_rank_of_another_host_raises_is_raised(on_hosts):
    with pytest.raises(LookupError, match="far away") as caught:
        horovod.run(end_on_the_last, ("far away",), **on_hosts)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback) and cause.rank == 2
    assert str(cause).startswith(f"on rank 2 ({sshd.HOSTS[2]}, pid ")


def test_a_rank_that_is_killed_on_another_host_is_reported(on_hosts):
    with pytest.raises(RuntimeError, match=rf"^rank 2 \({sshd.HOSTS[2]}, pid \d+\).*killed by SIGKILL"):
        horovod.run(end_on_the_last, ("kill",), **on_hosts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_or_the_end_of_the_caller_ends_the_ranks_of_all_hosts(on_hosts, number):
    launcher = Launcher()
    command = [sys.executable, str(PROGRAMS / "run_function.py"), "wait", json.dumps(on_hosts)]
    process = launcher.popen(command, env={**os.environ, **launcher.environment})
    seen = b""
    while seen.count(b"waiting") < 3:
        line = process.stdout.readline()
        assert line, (seen, process.stderr.read())
        seen += line
    assert len(launcher.survivors()) >= 5  # caller, launcher and ranks
    process.send_signal(number)
    result = launcher.finish(process, 30)
    launcher.wait_until_gone(3.0)
    assert result.returncode == (0 if number == signal.SIGINT else -number)
    assert (b"interrupted" in result.stdout) == (number == signal.SIGINT)


def test_a_host_that_cannot_be_reached_is_named(on_hosts, tmp_path):
    wrong = {**on_hosts, "ssh_identity_file": str(tmp_path / "no-key")}
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.[23]"):
        horovod.run(end_on_the_last, ("never",), **wrong)
