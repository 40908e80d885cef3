"""How much processor time the control groups of this process allow, in either version of them."""

import os
from collections.abc import Iterator

_MOUNTED = "/sys/fs/cgroup"
_OWN = "/proc/self/cgroup"


def quota(mounted: str = _MOUNTED, own: str = _OWN) -> float | None:
    """In cores: the smallest quota of this process's group and of those around it; None: there is no limit.
    Twin: core/runtime/engine/quota.cc.
    """
    limits = [cores for folder, version in _groups(mounted, own) if (cores := _cores(folder, version))]
    return min(limits, default=None)


def _groups(mounted: str, own: str) -> Iterator[tuple[str, int]]:
    """The folders that may have a quota, and the version that they are of.

    In a container without a namespace of its own for groups the path is that of the host, and its own group
    is at the top: folders that do not exist are no news.
    """
    for line in _read(own).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            tops, version = [mounted, os.path.join(mounted, "unified")], 2
        elif "cpu" in controllers.split(","):
            tops, version = [os.path.join(mounted, name) for name in (controllers, "cpu")], 1
        else:
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for top in tops:
            for depth in range(len(names) + 1):
                yield os.path.join(top, *names[:depth]), version


def _cores(folder: str, version: int) -> float | None:
    if version == 2:
        words = _read(os.path.join(folder, "cpu.max")).split()
    else:
        words = [_read(os.path.join(folder, f"cpu.cfs_{name}_us")).strip() for name in ("quota", "period")]
    try:
        quota, period = map(int, words)
    except ValueError:  # no such file, or the quota is "max"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
