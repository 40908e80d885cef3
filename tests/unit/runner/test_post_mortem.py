"""What is found out about a rank that a signal has killed, on made-up control groups."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from horovod.runner.post_mortem import MemoryKills, build_id, hint, killer, notes

_GROUPS = {
    2: ("0::/job/rank\n", "sys/fs/cgroup", "memory.events", "memory.max"),
    1: ("4:memory:/job/rank\n0::/\n", "sys/fs/cgroup/memory", "memory.oom_control", "memory.limit_in_bytes"),
}


def _host(root: Path, version: int, kills: int, limit: str, own: bool = True) -> None:
    """A host with one control group, which the process is in, or one whose parent is mounted as the root."""
    cgroup, top, counter, maximum = _GROUPS[version]
    group = root / top / "job" / "rank" if own else root / top
    group.mkdir(parents=True, exist_ok=True)
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/vmstat").write_text(f"pgfault 12\noom_kill {kills}\n")
    (group / counter).write_text(f"low 0\noom 3\noom_kill {kills}\n")
    (group / maximum).write_text(f"{limit}\n")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_the_oom_killer_is_named_with_the_limit(tmp_path: Path, version: int, own: bool) -> None:
    _host(tmp_path, version, 4, str(512 << 20), own)
    kills = MemoryKills(tmp_path)
    assert killer(-signal.SIGKILL, kills) is None
    _host(tmp_path, version, 5, str(512 << 20), own)
    assert killer(-signal.SIGKILL, kills) == "the kernel's OOM killer (limit 512.0 MiB)"
    assert killer(1, kills) is None


@pytest.mark.parametrize(("version", "limit"), [(1, str((1 << 63) - 4096)), (2, "max")])
def test_without_a_limit_it_was_the_host(tmp_path: Path, version: int, limit: str) -> None:
    _host(tmp_path, version, 0, limit)
    kills = MemoryKills(tmp_path)
    _host(tmp_path, version, 1, limit)
    assert kills.describe() == "the kernel's OOM killer (the host had no memory left)"


def test_nothing_to_read_is_nothing_to_say(tmp_path: Path) -> None:
    assert MemoryKills(tmp_path).describe() is None


def test_a_crash_tells_the_build() -> None:
    (line,) = notes(-signal.SIGSEGV, None)
    assert build_id() in line and len(build_id()) == 40


def test_a_kill_that_nobody_owns_hints_at_memory() -> None:
    (line,) = notes(-signal.SIGKILL, None)
    assert "memory" in line
    assert notes(-signal.SIGKILL, "the kernel's OOM killer") == []
    assert notes(1, None) == notes(-signal.SIGTERM, None) == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("input()", "add --stdin-rank 3"),
        (
            "import horovod",
            "its Python has no horovod, but that of horovodrun has: horovodrun -np N train.py",
        ),
        ("import yaml", "its Python has no yaml, but that of horovodrun has"),
        ("import not_installed_anywhere", None),
        ("import numpy; numpy.bool", "import horovod.mxnet before mxnet, or install numpy<1.24"),
        ("import horovod.nothing", None),
        (
            "import os, multiprocessing as mp; from horovod.bootstrap import processes; "
            "mp.parent_process = mp.current_process; "
            "processes.check_not_spawned({'HOROVOD_RANK_PROCESS': '2/1'})",
            "if __name__ == '__main__':",
        ),
        ("raise ValueError('elastic')", None),
    ],
)
def test_an_error_of_the_start_tells_what_to_do(code: str, advice: str | None, tmp_path: Path) -> None:
    if "numpy" in code:  # of the versions in which the name is missing
        (tmp_path / "numpy.py").write_text("")
    isolated = ["-I", "-S"] if advice is not None and "its Python" in advice else []
    command = [sys.executable, *isolated, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    given = hint(3, done.stderr)
    assert given is None if advice is None else given is not None and advice in given, done.stderr
