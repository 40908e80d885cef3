"""Hosts that dial the launcher: namespaces that stand for pods, where nobody logs in. Each has a network and,
where the system allows, a host name, processes and shared memory of its own: numbers of processes repeat.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import networks
import psutil
from launch import MODULE, Launcher
from load import within

ADDRESS, PORT = "10.77.0.254", 29500  # of the launcher
AGENT = (sys.executable, "-m", "horovod.runner.agent")


class Pods(Launcher):
    """Starts launchers and agents on them."""

    def __init__(self, hosts: networks.Hosts, folder: Path) -> None:
        super().__init__()
        self.hosts = hosts
        self.is_named = len(hosts.nodes[0].enters) > len(hosts.switch.enters)
        self.environment["HOROVOD_SECRET_FILE"] = self.new_secret(folder / "secret")

    def new_secret(self, path: Path) -> str:
        path.touch(mode=0o600)
        path.write_text(os.urandom(32).hex())
        return str(path)

    def lead(
        self, *arguments: str, hosts: int = 2, into: IO[bytes] | int = subprocess.PIPE, **changes: str
    ) -> "subprocess.Popen[bytes]":
        options = ["--rendezvous", f":{PORT}", "--wait-for-hosts", str(hosts)]
        command = self.hosts.switch.command(*MODULE, *options, *arguments)
        return self.popen(command, env={**self.environment, **changes}, stdout=into, stderr=into)

    def join(self, pod: int, *arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        name = () if self.is_named else ("--name", f"pod-{pod}")
        command = [*AGENT, "--join", f"{ADDRESS}:{PORT}", *name, *arguments]
        return self.popen(self.hosts.nodes[pod].command(*command), env={**self.environment, **changes})

    def alike(self, pod: int, *arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        name = {} if self.is_named else {"HOROVOD_HOSTNAME": f"pod-{pod}"}
        environment = {**self.environment, **name, **changes}
        return self.popen(self.hosts.nodes[pod].command(*MODULE, *arguments), env=environment)

    def signal(self, started: "subprocess.Popen[bytes]", number: int) -> None:
        """To what runs in the pod: who enters processes that are not his own waits outside for them."""
        process = psutil.Process(started.pid)
        (process.children() or [process])[0].send_signal(number)


@contextmanager
def running(folder: Path, count: int = 3, idle: float = 0.0) -> Iterator[Pods]:
    """So many of them; afterwards nothing may be left of their jobs. Their network forgets TCP connections
    that were ``idle`` for so many seconds, where that is not 0.
    """
    with ExitStack() as stack:
        hosts = stack.enter_context(networks.hosts(count, "pod-" if networks.have_machines() else ""))
        addresses = [f"10.77.0.{number + 1}/24" for number in range(count)]
        if idle:
            rule = stack.enter_context(hosts.join_by_switch(addresses, own=f"{ADDRESS}/24"))
            rule("*", "*", idle=idle)
        else:
            hosts.join("br0", "eth0", addresses, own=f"{ADDRESS}/24")
        pods = Pods(hosts, folder)
        yield pods
        pods.wait_until_gone(4.0)


def break_stores(pod: networks.Namespace, ranks: int) -> None:
    """Resets the connections of the ranks there to the store, and waits for others."""
    filter = ("dst", ADDRESS, "dport", "!=", str(PORT))
    before = {line.split()[3] for line in pod.run("ss", "-HKtn", *filter).splitlines()}
    assert len(before) >= ranks
    deadline = time.monotonic() + within(10)
    while len(pod.run("ss", "-Htn", "state", "established", *filter).splitlines()) < ranks:
        assert time.monotonic() < deadline, "there are no other connections"
        time.sleep(0.05)


def keep_apart(pod: networks.Namespace, numbers: Sequence[int]) -> Callable[[], None]:
    """What a pod sends to some others vanishes, as at a firewall. Returns what ends that."""
    pod.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
    others = [f"10.77.0.{number + 1}" for number in numbers]
    for other in others:
        nowhere = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
        pod.run("ip", "neigh", "replace", other, "dev", "eth0", *nowhere)

    def end() -> None:
        for other in others:
            pod.run("ip", "neigh", "del", other, "dev", "eth0")

    return end


def break_connection(pod: networks.Namespace) -> None:
    """Resets the connection to the launcher, and waits for another one."""
    filter = ("dport", "=", str(PORT))
    before = pod.run("ss", "-Htn", *filter).split()[3]
    pod.run("ss", "-HKtn", *filter)
    deadline = time.monotonic() + within(10)
    while before in (now := pod.run("ss", "-Htn", "state", "established", *filter)) or not now:
        assert time.monotonic() < deadline, "there is no other connection"
        time.sleep(0.05)
