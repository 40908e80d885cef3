"""Parts of a launch on this host that need no rank."""

import errno
import os
import selectors
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.bootstrap.network.interfaces import ANY_NETWORK
from horovod.bootstrap.start_settings import host_timeout
from horovod.runner import cgroups, limits, timeouts
from horovod.runner.hosts import allocate, parse
from horovod.runner.launchers import direct
from horovod.runner.limits import Load
from horovod.runner.nodes import rank_process
from horovod.runner.nodes.local import LocalNode
from horovod.runner.nodes.node import Work
from horovod.runner.nodes.rank_process import CommandError, runnable
from horovod.runner.outline import outline
from horovod.runner.standstill import looks_of


def test_a_job_that_needs_no_port_runs_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_port(ports: range | None) -> int:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(direct.endpoints, "free_port", no_port)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    job = object.__new__(direct._Start)
    said: list[str] = []
    job.placements, job._remotes = allocate(parse("localhost:2"), 2), {}
    job.hosts = SimpleNamespace(network=ANY_NETWORK, warn=said.append)  # type: ignore[assignment]
    assert job._master("unix:@store") == {}
    assert said[0].startswith("MASTER_PORT is not set: all ports of ")


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("no-such-program", "no-such-program: command not found"),
        ("trian.py", "trian.py: no such file"),
        ("./no/such/program", "./no/such/program: no such file"),
    ],
)
def test_a_command_that_does_not_exist(program: str, text: str) -> None:
    with pytest.raises(CommandError, match=f"^{text}$") as caught:
        runnable([program])
    assert caught.value.status == 127


def test_a_process_whose_output_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    selector = selectors.DefaultSelector()
    guardian = SimpleNamespace(watch=pids.append, forget=pids.remove)
    children = SimpleNamespace(expect=pids.append)
    node = LocalNode("here", selector, children, guardian, SimpleNamespace())  # type: ignore[arg-type]
    register, left = selector.register, [None]

    def refused(*arguments: Any) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()
        register(*arguments)

    monkeypatch.setattr(selector, "register", refused)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No space left"):
        node.start_one(0, ["sleep", "60"], {"PATH": os.defpath}, reads_input=False)
    (pid,) = pids  # the guardian does not watch it any more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert os.listdir("/proc/self/fd") == before and not selector.get_map()
    node.close()


def test_limits_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.refusal(Load(1)) is None
    text = limits.refusal(Load(10**9))
    assert text is not None and "-np 1000000000 is more than the" in text
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, 1024))
    assert limits.refusal(Load(256)) is None
    text = limits.refusal(Load(1000))
    assert text is not None and "the limit is 1024: raise it with ulimit -n 3032" in text
    text = limits.refusal(Load(256, files=2))  # for their output
    assert text is not None and "-np 256 needs 1312 open files" in text and "ulimit -n 1312" in text
    text = limits.refusal(Load(0, elsewhere=512, hosts=64, files=2))  # of other hosts only
    assert text is not None and "-np 512 needs 1760 open files" in text
    files = limits.limit_behind(OSError(errno.EMFILE, ""), Load(4))
    assert files == "; the limit is 1024 open files: raise it with ulimit -n 44"
    assert "ulimit -u" in limits.limit_behind(OSError(errno.EAGAIN, ""), Load(4))
    assert limits.limit_behind(OSError(errno.ENOENT, ""), Load(4)) == ""


def test_a_soft_limit_is_raised_as_far_as_the_ranks_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user, or the system, has set for good is refused with the remedy."""
    kept = {limits.resource.RLIMIT_NOFILE: (1024, 4096), limits.resource.RLIMIT_NPROC: (100, 200)}
    monkeypatch.setattr(limits.resource, "getrlimit", kept.__getitem__)
    monkeypatch.setattr(limits.resource, "setrlimit", kept.__setitem__)
    limits.make_room(Load(50))
    assert set(kept.values()) == {(1024, 4096), (100, 200)}
    limits.make_room(Load(150, elsewhere=1000))
    assert set(kept.values()) == {(1482, 4096), (150, 200)}
    assert limits.refusal(Load(150, elsewhere=1000)) is None
    limits.make_room(Load(2000))
    assert set(kept.values()) == {(4096, 4096), (200, 200)}
    text = limits.refusal(Load(2000))
    assert text is not None and "-np 2000 is more than the 200 processes" in text


def test_a_worker_has_its_share_of_the_cores_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that is, and unless the user has said it."""
    monkeypatch.setattr(rank_process, "usable_cores", lambda: 8)
    started: list[Mapping[str, str]] = []
    node = LocalNode.__new__(LocalNode)
    node._ranks = [SimpleNamespace(is_alive=False)]  # type: ignore[list-item]
    monkeypatch.setattr(node, "start_one", lambda number, command, own, **options: started.append(own))
    for environment in ({}, {"OMP_NUM_THREADS": "5"}):
        node._work = Work(["true"], environment, (), 0)
        node.start_worker(0, {"X": "1"}, 4)
    assert started == [{"OMP_NUM_THREADS": "2", "X": "1"}, {"OMP_NUM_THREADS": "5", "X": "1"}]


GROUPS = [
    # /proc/self/cgroup, the files, the cores
    ("0::/\n", {"cpu.max": "350000 100000"}, 3.5),
    ("0::/\n", {"cpu.max": "max 100000"}, None),
    ("0::/a/b/c\n", {"a/cpu.max": "150000 100000", "a/b/c/cpu.max": "400000 100000"}, 1.5),
    ("0::/../b\n", {"b/cpu.max": "20000 10000"}, 2.0),
    ("0::/of/the/host\n", {"cpu.max": "20000 10000"}, 2.0),  # a container without a namespace for groups
    ("2:cpu,cpuacct:/d\n0::/\n", {"cpu,cpuacct/d/": "300000 100000"}, 3.0),
    ("2:cpuacct,cpu:/d\n", {"cpu/d/": "300000 100000", "cpu/": "200000 100000"}, 2.0),
    ("2:cpu:/d\n", {"cpu/d/": "-1 100000"}, None),
    ("3:cpuset:/x\n2:memory:/y\n", {"memory/y/": "100000 100000"}, None),
    ("1:cpu:/\n0::/s\n", {"unified/s/cpu.max": "500000 100000"}, 5.0),
    ("nonsense\n\n", {"cpu.max": "1 1"}, None),
]


@pytest.mark.parametrize("own, files, cores", GROUPS)
def test_quotas_of_groups_of_either_version_count_at_any_depth(
    tmp_path: Path, own: str, files: dict[str, str], cores: float | None
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "cpu.max":
            path.write_text(f"{text}\n")
            continue
        path.mkdir(parents=True, exist_ok=True)
        for part, number in zip(("quota", "period"), text.split(), strict=True):
            (path / f"cpu.cfs_{part}_us").write_text(f"{number}\n")
    (tmp_path / "own").write_text(own)
    assert cgroups.quota(str(tmp_path), str(tmp_path / "own")) == cores


@pytest.mark.parametrize("name", ["HOROVOD_TRANSPORT", "OMP_NUM_THREADS"])
def test_what_stands_in_the_environment_is_escaped(name: str) -> None:
    line = outline(allocate(parse("localhost:2"), 2), {"HOROVOD_TRANSPORT": "tcp", name: "\x1b[2J\udcff"})
    assert line.isprintable() and line.encode().startswith(b"2 ranks on ")


def test_the_outline_names_the_hosts() -> None:
    places = allocate(parse("localhost:2,far:1"), 3)
    assert outline(places, {"OMP_NUM_THREADS": "1"}) == (
        "3 ranks on 2 hosts (2 on localhost, 1 on far), over shared memory within a host and TCP between "
        "hosts, 1 thread each"
    )
    encrypted = outline(places, {"HOROVOD_ENCRYPT": "true"})
    assert "over shared memory within a host and encrypted TCP between hosts, " in encrypted


def test_variables_of_times_count_as_the_options_do() -> None:
    assert timeouts.start_seconds({}) is None
    assert timeouts.start_seconds({"HOROVOD_START_TIMEOUT": "1.5"}) == 1.5
    for text in ("", "0", "soon", "-1", "nan", "inf", "0x10", "86401"):  # what the ranks cannot use either
        assert timeouts.start_seconds({"HOROVOD_START_TIMEOUT": text}) is None
    assert timeouts.elastic_seconds({}) == 600.0
    assert timeouts.elastic_seconds({"HOROVOD_ELASTIC_TIMEOUT": "7"}) == 7.0
    with pytest.raises(ValueError, match="HOROVOD_ELASTIC_TIMEOUT: 'soon' is no number"):
        timeouts.elastic_seconds({"HOROVOD_ELASTIC_TIMEOUT": "soon"})


@pytest.mark.parametrize("text", ["soon", "-5", "nan", "inf", "1e300"])
def test_a_variable_of_a_time_that_is_none_stops_nobody(text: str) -> None:
    """The default holds, as with the ranks, which say so."""
    assert looks_of({"HOROVOD_STOPPED_TIMEOUT_SECONDS": text}) == looks_of({}) == 599
    assert looks_of({"HOROVOD_STOPPED_TIMEOUT_SECONDS": "20"}) == 19
    assert host_timeout({"HOROVOD_HOST_TIMEOUT": text}) == host_timeout({}) == 30.0
    with pytest.raises(ValueError, match=f"HOROVOD_HOST_TIMEOUT: '{text}' is no number of at least 0"):
        timeouts.lost_seconds({"HOROVOD_HOST_TIMEOUT": text})  # where somebody reads it at once
