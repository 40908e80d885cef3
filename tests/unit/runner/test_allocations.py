"""A batch job says on which hosts the ranks run, one of LSF also that jsrun starts them if it is there."""

from pathlib import Path

import pytest

from horovod.runner import allocations
from horovod.runner.allocations import Allocation
from horovod.runner.hosts import Host, HostsError
from horovod.runner.launch import parse_args

JOB = {"LSB_JOBID": "71"}


def found(environ: dict[str, str]) -> tuple[list[Host], str] | None:
    allocation = allocations.find(environ)
    return None if allocation is None else (allocation.hosts, allocation.variable)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "PBS_NODEFILE")
    lsf = (allocations.JOB, allocations.HOST_FILE, allocations.HOST_LIST, "CSM_ALLOCATION_ID")
    for name in (*slurm, *lsf):
        monkeypatch.delenv(name, raising=False)


def test_hosts_of_a_list() -> None:
    environ = {**JOB, "LSB_MCPU_HOSTS": "a 4 b 2 a 1"}
    assert found(environ) == ([Host("a", 5), Host("b", 2)], "LSB_MCPU_HOSTS")


def test_hosts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n\na\n")
    environ = {**JOB, "LSB_DJOB_HOSTFILE": str(file), "LSB_MCPU_HOSTS": "other 1"}
    assert found(environ) == ([Host("a", 3), Host("b", 1)], "LSB_DJOB_HOSTFILE")


def test_launch_node_runs_no_ranks() -> None:
    environ = {**JOB, "LSB_MCPU_HOSTS": "batch1 1 h1 42 h2 42"}
    assert found({**environ, "CSM_ALLOCATION_ID": "9"}) == (
        [Host("h1", 42), Host("h2", 42)],
        "LSB_MCPU_HOSTS",
    )
    assert found(environ)[0][0] == Host("batch1", 1)  # type: ignore[index]


def test_elsewhere_there_are_none() -> None:
    assert found({"LSB_MCPU_HOSTS": "a 4"}) is None and found(JOB) is None


@pytest.mark.parametrize("text", ["a", "a 4 b", "a four", "4 a x", "a -1"])
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(HostsError, match="LSB_MCPU_HOSTS"):
        found({**JOB, "LSB_MCPU_HOSTS": text})


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    for name in ("absent", "empty"):
        (tmp_path / "empty").touch()
        with pytest.raises(HostsError, match=f"LSB_DJOB_HOSTFILE=.*{name}"):
            found({**JOB, "LSB_DJOB_HOSTFILE": str(tmp_path / name)})


def test_options_are_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LSB_JOBID", "71")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "localhost 3")
    arguments = parse_args(["prog"])
    assert (arguments.num_proc, arguments.host_list) == (3, [Host("localhost", 3)])
    assert parse_args(["-H", "localhost:2", "-np", "auto", "prog"]).num_proc == 2
    assert arguments.controller == "gloo"
    (tmp_path / "jsrun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parse_args(["prog"]).controller == "jsrun"
    assert parse_args(["--gloo", "prog"]).controller == "gloo"
    assert parse_args(["-H", "localhost:2", "-np", "2", "prog"]).controller == "gloo"


def test_hosts_of_slurm() -> None:
    environ = {"SLURM_JOB_NODELIST": "gpu[01-03],login", "SLURM_TASKS_PER_NODE": "2(x3),1"}
    hosts = [Host("gpu01", 2), Host("gpu02", 2), Host("gpu03", 2), Host("login", 1)]
    assert allocations.find(environ) == Allocation(hosts, "SLURM_JOB_NODELIST")
    assert found({**environ, "SLURM_STEP_NUM_TASKS": "1"}) == (hosts, "SLURM_JOB_NODELIST")


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_NODELIST": "a,b"},
        {"SLURM_TASKS_PER_NODE": "2"},
        {"SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "1"},  # of a step on one of them
        {"SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_what_is_of_a_step_is_no_allocation(environ: dict[str, str]) -> None:
    assert found(environ) is None


def test_hosts_of_pbs(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("n1\nn1\nn2.example\n")
    assert found({"PBS_NODEFILE": str(file)}) == ([Host("n1", 2), Host("n2.example", 1)], "PBS_NODEFILE")
    with pytest.raises(HostsError, match=r"PBS_NODEFILE=.*absent: No such file.*; -H names"):
        found({"PBS_NODEFILE": str(tmp_path / "absent")})


@pytest.mark.parametrize("text", ["2(x", "two"])
def test_what_slurm_does_not_write_is_named(text: str) -> None:
    with pytest.raises(HostsError, match="SLURM_TASKS_PER_NODE"):
        found({"SLURM_JOB_NODELIST": "a", "SLURM_TASKS_PER_NODE": text})


TASKS = [
    # tasks of two nodes, options, slots or the refusal
    ("2(x2)", "", [2, 2]),
    ("2(x2)", "-np 3", [2, 2]),
    ("1(x2)", "--nproc-per-node 4", [4, 4]),  # a task for each node starts all its ranks
    ("1(x2)", "--nnodes 2 -np 8", [4, 4]),
    ("2(x2)", "--exclude n1", [2]),
    ("2(x2)", "--exclude n1 --mpi -np 2", [2]),
    ("2(x2)", "--min-np 2", [2, 2]),
    ("2(x2)", "--min-np 2 -np 4", [2, 2]),
    ("1(x2)", "-np 8", "-np 8 is more than the 2 slots of n0:1,n1:1"),
]


@pytest.mark.parametrize(("tasks", "line", "expected"), TASKS)
def test_options_in_a_slurm_job(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tasks: str,
    line: str,
    expected: list[int] | str,
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    if isinstance(expected, str):
        with pytest.raises(SystemExit):
            parse_args([*line.split(), "prog"])
        assert expected in capsys.readouterr().err
        return
    hosts = [Host(f"n{number}", slots) for number, slots in enumerate(expected)]
    assert parse_args([*line.split(), "prog"]).host_list == hosts


def test_one_host_runs_as_many_ranks_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch jobs of one task are started with -np for its cores or GPUs."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n0")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1")
    assert parse_args(["-np", "4", "prog"]).host_list == [Host("n0", 4)]
    assert parse_args(["prog"]).num_proc == 1
    assert parse_args(["-H", "localhost:3", "-np", "auto", "prog"]).num_proc == 3
    assert parse_args(["--mpi", "-np", "4", "prog"]).host_list == [Host("localhost", 4)]  # mpirun knows
    assert parse_args(["--rendezvous", ":29500", "--nnodes", "1", "-np", "2", "prog"]).allocation is None
