"""An LSF job says on which hosts the ranks run, and that jsrun starts them where it is there."""

from pathlib import Path

import pytest

from horovod.runner import lsf
from horovod.runner.hosts import Host, HostsError
from horovod.runner.launch import parse_args

JOB = {"LSB_JOBID": "71"}


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (lsf.JOB, lsf.HOST_FILE, lsf.HOST_LIST, "CSM_ALLOCATION_ID"):
        monkeypatch.delenv(name, raising=False)


def test_hosts_of_a_list() -> None:
    environ = {**JOB, "LSB_MCPU_HOSTS": "a 4 b 2 a 1"}
    assert lsf.hosts(environ) == ([Host("a", 5), Host("b", 2)], "LSB_MCPU_HOSTS")


def test_hosts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n\na\n")
    environ = {**JOB, "LSB_DJOB_HOSTFILE": str(file), "LSB_MCPU_HOSTS": "other 1"}
    assert lsf.hosts(environ) == ([Host("a", 3), Host("b", 1)], "LSB_DJOB_HOSTFILE")


def test_launch_node_runs_no_ranks() -> None:
    environ = {**JOB, "LSB_MCPU_HOSTS": "batch1 1 h1 42 h2 42"}
    assert lsf.hosts({**environ, "CSM_ALLOCATION_ID": "9"}) == (
        [Host("h1", 42), Host("h2", 42)],
        "LSB_MCPU_HOSTS",
    )
    assert lsf.hosts(environ)[0][0] == Host("batch1", 1)  # type: ignore[index]


def test_elsewhere_there_are_none() -> None:
    assert lsf.hosts({"LSB_MCPU_HOSTS": "a 4"}) is None and lsf.hosts(JOB) is None


@pytest.mark.parametrize("text", ["a", "a 4 b", "a four", "4 a x", "a -1"])
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(HostsError, match="LSB_MCPU_HOSTS"):
        lsf.hosts({**JOB, "LSB_MCPU_HOSTS": text})


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    for name in ("absent", "empty"):
        (tmp_path / "empty").touch()
        with pytest.raises(HostsError, match=f"LSB_DJOB_HOSTFILE=.*{name}"):
            lsf.hosts({**JOB, "LSB_DJOB_HOSTFILE": str(tmp_path / name)})


def test_options_are_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LSB_JOBID", "71")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "localhost 3")
    arguments = parse_args(["prog"])
    assert (arguments.num_proc, arguments.host_list) == (3, [Host("localhost", 3)])
    assert parse_args(["-H", "localhost:2", "-np", "auto", "prog"]).num_proc == 2
    assert arguments.controller == "gloo"
    (tmp_path / "jsrun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (parse_args(["prog"]).controller, parse_args(["prog"]).launcher) == ("jsrun", "mpi")
    assert parse_args(["--gloo", "prog"]).controller == "gloo"
    assert parse_args(["-H", "localhost:2", "-np", "2", "prog"]).controller == "gloo"
