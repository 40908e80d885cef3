"""What may be wrong with a host, and with a link, each with what to do. Pure but for looking at this host."""

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import resource
import socket
import statistics
import struct
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.bootstrap.network.interfaces import addresses, is_loopback
from horovod.bootstrap.text import escaped
from horovod.version import __version__

from .. import limits

VERSION = "version"
_PACKAGES = ("torch", "tensorflow", "tensorflow-cpu", "keras", "tf_keras", "mxnet", "numpy")
_SIOCGIFMTU = 0x8921  # of <linux/sockios.h>
_COLUMNS = 79
_THREADS = "OMP_NUM_THREADS"
_SHARED_MEMORY = 256 << 20
_OPEN_FILES = 4096
_MOST_SKEW = 1.0
_SLOW = 3.0  # times as slow as the median of the links


@dataclass(frozen=True)
class Finding:
    """What was looked at, what it is, and what to do about it, if anything."""

    name: str
    value: str
    remedy: str = ""


def wrapped(text: str, indent: int = 2) -> str:
    """In lines that fit a terminal; the further ones begin with ``indent`` blanks."""
    return textwrap.fill(escaped(text), _COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False)


def look_at_host() -> list[Finding]:
    """All that can be seen from within this host alone."""
    limits_of_it = [_shared_memory(), _open_files(), _processes()]
    return [_cores(), _threads(), _load(), *limits_of_it, _interfaces(), *_versions()]


def _cores() -> Finding:
    usable, all_of_them = limits.usable_cores(), os.cpu_count() or 1
    remedy = "" if usable > 1 else "ranks compute one after the other: give the container or job more cores"
    return Finding("cores", f"{usable} of {all_of_them}", remedy)


def _threads() -> Finding:
    """Of the arithmetic of a rank, for which horovodrun shares the cores out, unless the user says it."""
    text = os.environ.get(_THREADS, "")
    is_much = text.isdecimal() and int(text) > limits.usable_cores()
    remedy = f"more than there are cores: unset {_THREADS}" if is_much else ""
    return Finding("threads", f"{_THREADS}={text}" if text else "as frameworks choose", remedy)


def _load() -> Finding:
    load = os.getloadavg()[0]
    is_busy = load > 0.5 * limits.usable_cores() + 1
    return Finding(
        "load", f"{load:.1f}", "other programs compute here, and ranks wait for them" if is_busy else ""
    )


def _shared_memory() -> Finding:
    try:
        found = os.statvfs("/dev/shm")
    except OSError as error:
        return Finding("/dev/shm", str(error), "ranks of this host talk over TCP: mount a tmpfs there")
    free = found.f_bavail * found.f_frsize
    remedy = (
        ""
        if free >= _SHARED_MEMORY
        else "too little for several ranks: docker run --shm-size=1g, or a larger tmpfs"
    )
    return Finding("/dev/shm", f"{free >> 20} MiB free", remedy)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    remedy = (
        "" if hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES else f"raise it: ulimit -Hn {_OPEN_FILES}"
    )
    return Finding("open files", f"{_limit(soft)}, up to {_limit(hard)}", remedy)


def _processes() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    return Finding("processes", _limit(hard), "" if hard < 0 or hard >= 1024 else "raise it: ulimit -Hu 4096")


def _interfaces() -> Finding:
    """Those by which other hosts may be reached."""
    found = dict.fromkeys(each.interface for each in addresses() if not is_loopback(each.host))
    shown = [f"{name} (MTU {mtu})" if (mtu := _mtu(name)) else name for name in found]
    return Finding("interfaces", ", ".join(shown) or "none but loopback")


def _mtu(interface: str) -> int | None:
    request = struct.Struct("16si20x")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, request.pack(interface.encode(), 0))
        return int(request.unpack(answer)[1])
    return None


def _limit(number: int) -> str:
    return "no limit" if number == resource.RLIM_INFINITY else str(number)


def _versions() -> list[Finding]:
    found = {"python": platform.python_version(), "horovod": __version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return [Finding(VERSION, f"{name} {version}") for name, version in found.items()]


def differences(hosts: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Versions that are not the same on all hosts."""
    by_host = {
        host: {each.value for each in found if each.name == "version"} for host, found in hosts.items()
    }
    common = set.intersection(*by_host.values()) if by_host else set()
    return [
        Finding(host, ", ".join(sorted(own - common)), "not the same on all hosts: install the same versions")
        for host, own in by_host.items()
        if own - common
    ]


def skew(host: str, seconds: float) -> Finding:
    """Of the clock of a host, against that of the first one."""
    remedy = "set the clocks: times in logs and timelines do not agree" if abs(seconds) > _MOST_SKEW else ""
    return Finding(host, f"clock {seconds:+.2f} s", remedy)


def links(rates: Mapping[tuple[str, str], float]) -> list[Finding]:
    """Of each link its bytes for each second. A host that is slow to all others is named, and so is a link
    that is slow between two hosts that are not.
    """
    hosts = dict.fromkeys(host for pair in rates for host in pair)
    best = {host: max(rate for pair, rate in rates.items() if host in pair) for host in hosts}
    usual = statistics.median(best.values()) if best else 0.0
    slow = [host for host, rate in best.items() if rate * _SLOW < usual]
    found = [Finding(f"{one} to {other}", _speed(rate)) for (one, other), rate in rates.items()]
    for at, ((one, other), rate) in enumerate(rates.items()):
        if rate * _SLOW < usual and one not in slow and other not in slow:
            found[at] = Finding(found[at].name, found[at].value, _remedy(usual / rate))
    return [*found, *(Finding(host, _speed(best[host]), _remedy(usual / best[host])) for host in slow)]


def _speed(rate: float) -> str:
    return f"{rate / 1e6:.0f} MB/s"


def _remedy(times: float) -> str:
    return f"{times:.0f} times slower than the others: look at its cable, switch, interface and MTU"
