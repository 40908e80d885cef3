"""Parts of a launch on this host that need no rank."""

import errno
import os

import pytest

from horovod.runner import limits
from horovod.runner.launchers import direct
from horovod.runner.sink import Sink


def test_a_job_that_needs_no_port_runs_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_port() -> int:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(direct.endpoints, "free_port", no_port)
    read_end, write_end = os.pipe()
    sink = Sink(write_end, lambda: None)
    assert direct._master_port(sink) == {}
    assert b"MASTER_PORT is not set: all ports of " in os.read(read_end, 1000)
    sink.close()
    os.close(read_end)
    os.close(write_end)


def test_limits_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.refusal(1) is None
    text = limits.refusal(10**9)
    assert text is not None and "-np 1000000000 is more than the" in text
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, 4096))
    assert limits.refusal(256) is None
    text = limits.refusal(1000)
    assert text is not None and "the limit is 1024: raise it with ulimit -n 3032" in text
    text = limits.refusal(256, 2)  # with files for their output
    assert text is not None and "-np 256 needs 1312 open files" in text and "ulimit -n 1312" in text
    files = limits.limit_behind(OSError(errno.EMFILE, ""), 4)
    assert files == "; the limit is 1024 open files: raise it with ulimit -n 44"
    assert "ulimit -u" in limits.limit_behind(OSError(errno.EAGAIN, ""), 4)
    assert limits.limit_behind(OSError(errno.ENOENT, ""), 4) == ""


@pytest.mark.parametrize("name", ["HOROVOD_TRANSPORT", "OMP_NUM_THREADS"])
def test_what_stands_in_the_environment_is_escaped(name: str) -> None:
    line = direct._outline(2, {"HOROVOD_TRANSPORT": "tcp", name: "\x1b[2J\udcff"})
    assert line.isprintable() and line.encode().startswith(b"2 ranks on ")
