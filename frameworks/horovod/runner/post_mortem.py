"""What can be found out about a process that a signal has killed: which build it ran, who sent the signal."""

import importlib.util
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from horovod.version import __version__

_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}
# What programs write of errors that come of how they are started, and what to do about them.
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([a-zA-Z]\w*)'", re.MULTILINE)
_HINTS = (
    (
        r"^(?:bdb\.BdbQuit|EOFError: EOF when reading a line)",
        "nobody could answer it: to use breakpoint() or input() there, add --stdin-rank {rank}",
    ),
    (
        r"multiprocessing has started for rank \d+.* imports the program anew",
        "a worker of a DataLoader or pool imports the program anew, hvd.init() and all: put what it runs "
        "within if __name__ == '__main__':",
    ),
    (
        r"^AttributeError: module 'numpy' has no attribute 'bool'",
        "if MXNet asked for it: import horovod.mxnet before mxnet, or install numpy<1.24",
    ),
)
# The note that linkers write: sizes of name and id, type, name, id of 20 bytes.
_BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.DOTALL)


def build_id() -> str:
    """The linker's id of the core's binary, by which its symbols are found; "unknown" without one."""
    try:
        spec = importlib.util.find_spec("horovod._core")
        match = _BUILD_ID.search(Path(spec.origin).read_bytes()) if spec and spec.origin else None
    except (ImportError, OSError):
        match = None
    return match[1].hex() if match else "unknown"


class MemoryKills:
    """Knows whether the kernel has killed for want of memory since this object was made.

    The counters are those of the control groups that this process and its children are in, of version 1 and
    2, and those of the host. ``root`` is for tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = dict(self._counters())

    def describe(self) -> str | None:
        """Who killed, with the limit; None when the counters have not moved or cannot be read."""
        moved = [folder for folder, count in self._counters() if count > self._before.get(folder, 0)]
        if not moved:
            return None
        limits = (limit for folder in moved if folder is not None and (limit := _limit(folder)) is not None)
        limit = min(limits, default=None)
        where = f"limit {limit / (1 << 20):.1f} MiB" if limit is not None else "the host had no memory left"
        return f"the kernel's OOM killer ({where})"

    def _counters(self) -> Iterator[tuple[Path | None, int]]:
        """(control group, or None for the host; processes that the kernel has killed in it)."""
        yield None, _number(self._root / "proc/vmstat", "oom_kill") or 0
        for folder in self._groups():
            for name in ("memory.events", "memory.oom_control"):
                count = _number(folder / name, "oom_kill")
                if count is not None:
                    yield folder, count

    def _groups(self) -> Iterator[Path]:
        """The groups of this process, up to the root of their hierarchy."""
        try:
            lines = (self._root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = self._root / "sys/fs/cgroup" / controllers
            group = top / path.lstrip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def notes(code: int, killer: str | None) -> list[str]:
    """Lines for the report on a rank that ended in this way: with an exit status, or minus a signal, which
    ``killer`` has sent where that is known.
    """
    if code == -signal.SIGKILL and killer is None:
        return ["who sent it is not known; often memory ran out (see dmesg), or a job system has a limit"]
    if code in _CRASHES:
        return [f"it ran horovod {__version__}, build id of the core {build_id()}"]
    return []


def hint(rank: int, stderr: str) -> str | None:
    """What to do about an error that comes of how the program is started."""
    absent = _NO_MODULE.search(stderr)
    if absent is not None and importlib.util.find_spec(absent[1]) is not None:
        have = f"its Python has no {absent[1]}, but that of horovodrun has"
        return f"{have}: horovodrun -np N train.py, without python, takes the latter"
    found = (text for pattern, text in _HINTS if re.search(pattern, stderr, re.MULTILINE))
    return next((text.format(rank=rank) for text in found), None)


def killer(code: int, kills: MemoryKills) -> str | None:
    """Who sent the signal that ended a rank, where that can be known."""
    return kills.describe() if code == -signal.SIGKILL else None


def _number(path: Path, key: str) -> int | None:
    """The number behind ``key`` in a file of such lines."""
    try:
        match = re.search(rf"^{key} (\d+)$", path.read_text(encoding="ascii"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return int(match[1]) if match else None


def _limit(group: Path) -> int | None:
    """The bytes that a control group may use; None: as many as there are."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (group / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None
