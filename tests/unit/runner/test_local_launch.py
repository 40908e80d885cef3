"""Parts of a launch on this host that need no rank."""

import errno
import os
import selectors
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.bootstrap.network.interfaces import ANY_NETWORK
from horovod.runner import limits
from horovod.runner.hosts import allocate, parse
from horovod.runner.launchers import direct
from horovod.runner.limits import Load
from horovod.runner.nodes.local import LocalNode
from horovod.runner.nodes.rank_process import CommandError, runnable
from horovod.runner.outline import outline


def test_a_job_that_needs_no_port_runs_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_port(ports: range | None) -> int:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(direct.endpoints, "free_port", no_port)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    job = object.__new__(direct._Job)
    said: list[str] = []
    job.placements, job._remotes, job._network = allocate(parse("localhost:2"), 2), {}, ANY_NETWORK
    monkeypatch.setattr(job, "_warn", said.append)
    assert job._master("127.0.0.1") == {}
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
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, 4096))
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
