"""Hosts with networks of their own on this machine: namespaces that are joined by a bridge.

A namespace has no name, so that runs do not meet, and lives as long as the process that holds it: a ``cat``
that ends when the process of the test does, however that ends. Nothing here needs root where the system lets
users have namespaces of their own.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SWITCH = Path(__file__).with_name("switch.py")
OWN_MACHINE = ("--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")  # options of unshare
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


@dataclass
class Namespace:
    """One host: a network of its own."""

    holder: subprocess.Popen[bytes]
    enters: tuple[str, ...]  # options of nsenter
    files: dict[str, int]  # to enter by, and what kind each is
    interfaces: dict[str, list[str]] = field(default_factory=dict)  # their addresses

    def command(self, *words: str) -> list[str]:
        """To be run outside: ``words`` inside."""
        return ["nsenter", *self.enters, *words]

    def run(self, *words: str) -> str:
        """The output of a command inside."""
        return subprocess.run(self.command(*words), check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """The kernel takes the interfaces along."""
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        self.holder.wait(10)


@dataclass
class Hosts:
    """``switch`` has the bridge that leads to all ``nodes``, and is where the launcher runs."""

    switch: Namespace
    nodes: list[Namespace]

    def join(self, bridge: str, interface: str, addresses: Sequence[str], own: str = "") -> None:
        """Gives node i the interface with ``addresses[i]`` ("10.0.0.1/24"; empty: none of its own), all
        joined by a new bridge, where the launcher has the address ``own``.
        """
        self.switch.run("ip", "link", "add", bridge, "type", "bridge")
        self._rise(self.switch, bridge, own)
        for number, (node, address) in enumerate(zip(self.nodes, addresses, strict=True)):
            end = f"{bridge}.{number}"
            pid = str(node.holder.pid)
            ends = ("ip", "link", "add", end, "type", "veth", "peer", "name", interface, "netns", pid)
            self.switch.run(*ends)
            self.switch.run("ip", "link", "set", end, "master", bridge, "up")
            self._rise(node, interface, address)

    @contextlib.contextmanager
    def join_far(self, seconds: float, addresses: Sequence[str]) -> Iterator[None]:
        """As ``join``, by a switch that hands each frame on only after so long."""
        with self.join_by_switch(addresses) as rule:
            rule("*", "*", delay=seconds)
            yield

    @contextlib.contextmanager
    def join_by_switch(self, addresses: Sequence[str], own: str = "") -> Iterator[Callable[..., None]]:
        """As ``join``, by a program. Gives a function that changes what befalls frames from one node to
        another ("*": any; see ``Path`` in switch.py for the keywords). The launcher's place, which has the
        address ``own``, counts as the last node.
        """
        joined = [*self.nodes, *([self.switch] if own else [])]
        files = [_network_file(node) for node in joined]
        command = self.switch.command(sys.executable, str(SWITCH), *files)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as switch:
            assert switch.stdin is not None and switch.stdout is not None
            into, out = switch.stdin, switch.stdout

            def rule(source: int | str, target: int | str, **changes: float) -> None:
                words = " ".join(f"{key}={value}" for key, value in changes.items())
                into.write(f"{source} {target} {words}\n".encode())
                into.flush()
                assert out.readline() == b"ok\n", "the switch has ended"

            try:
                assert out.readline() == b"ready\n", "no switch"
                for node, address in zip(joined, [*addresses, *([own] if own else [])], strict=True):
                    self._rise(node, "eth0", address)
                yield rule
            finally:
                into.close()

    def request(self, hosts: Sequence[int], listening: Sequence[str]) -> dict[str, Any]:
        """For ``run_ranks``: where each rank runs, and at which addresses of the switch the store is."""
        return {
            "store": list(listening),
            "switch": self.switch.files,
            "ranks": [_network(self.nodes[number]) for number in hosts],
        }

    def _rise(self, where: Namespace, interface: str, address: str) -> None:
        where.run("sysctl", "-qw", f"net.ipv6.conf.{interface}.accept_dad=0")
        for one in address.split():
            where.run("ip", "address", "add", one, "dev", interface, *(["nodad"] if ":" in one else []))
            where.interfaces.setdefault(interface, []).append(one.partition("/")[0])
        where.run("ip", "link", "set", interface, "up")


def why_not() -> str:
    """Why there can be no such hosts here; empty: there can."""
    missing = [tool for tool in ("ip", "unshare", "nsenter", "sysctl") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed (iproute2, util-linux, procps)"
    if not _way_in():
        return "the system gives no network namespaces to this user"
    kinds = (["veth", "peer", "name", "probe1"], ["bridge"])
    if not all(_works([*_way_in(), "ip", "link", "add", "probe0", "type", *kind]) for kind in kinds):
        return "the kernel has no veth interfaces or bridges"
    return ""


@contextlib.contextmanager
def hosts(count: int, machines: str = "") -> Iterator[Hosts]:
    """Namespaces that are joined by nothing yet; each has a loopback interface. With ``machines`` each node i
    has also a host name, that and the number i, and processes, mounts and shared memory of its own.
    """
    with contextlib.ExitStack() as stack:
        way = _way_in()
        switch = _hold(way, "--user" in way)
        stack.callback(switch.close)
        nodes = []
        for number in range(count):
            own = ["nsenter", *switch.enters, "unshare", "--net"]
            name = f"{machines}{number}" if machines else ""
            nodes.append(_hold(own, "--user" in way, switch, name))
            stack.callback(nodes[-1].close)
        for namespace in (switch, *nodes):
            namespace.run("ip", "link", "set", "lo", "up")
        yield Hosts(switch, nodes)


def have_machines() -> bool:
    """Whether nodes can be ``machines``, too: a system may keep users from mounting a /proc of their own."""
    return _works([*_way_in(), *OWN_MACHINE, "sh", "-c", _BECOME_MACHINE.format("probe")])


def enter(files: dict[str, int]) -> None:
    """Moves this process, which must have one thread, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path, kind in files.items():
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")
        os.close(descriptor)


def _way_in() -> list[str]:
    for way in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        if _works([*way, "true"]):
            return way
    return []


def _works(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


_BECOME_MACHINE = "echo {} >/proc/sys/kernel/hostname && mount -t tmpfs tmpfs /dev/shm"


def _hold(
    way: Sequence[str], has_user: bool, within: Namespace | None = None, machine: str = ""
) -> Namespace:
    """Starts the process that holds a namespace, and waits until it is in it."""
    become = f"{_BECOME_MACHINE.format(machine)} && " if machine else ""
    own = OWN_MACHINE if machine else ()
    command = [*way, *own, "sh", "-c", f"{become}echo && exec cat >/dev/null"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.read(1) == b"\n", "no namespace"
    user = within.holder.pid if within else holder.pid
    files = {f"/proc/{holder.pid}/ns/net": CLONE_NEWNET}
    enters: tuple[str, ...] = (f"--net=/proc/{holder.pid}/ns/net",)
    if machine:
        kinds = {"uts": "uts", "mount": "mnt", "pid": "pid_for_children"}
        enters += tuple(f"--{option}=/proc/{holder.pid}/ns/{kind}" for option, kind in kinds.items())
    if has_user:
        files = {f"/proc/{user}/ns/user": CLONE_NEWUSER, **files}
        enters = (f"--user=/proc/{user}/ns/user", "--preserve-credentials", *enters)
    return Namespace(holder, enters, files)


def _network(node: Namespace) -> dict[str, int]:
    """For a process that is in the user's namespace already."""
    return {path: kind for path, kind in node.files.items() if kind == CLONE_NEWNET}


def _network_file(node: Namespace) -> str:
    (path,) = _network(node)
    return path
