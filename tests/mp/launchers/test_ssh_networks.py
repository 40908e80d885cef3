"""horovodrun on three hosts that have networks of their own: namespaces, each with an sshd."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networks
import pytest
import sshd
from launch import MODULE, PROGRAMS, Launcher
from load import within

REASON = (
    sshd.missing()
    or networks.why_not()
    or ("" if os.geteuid() == 0 else "sshd logs in nobody in a namespace that belongs to a user: run as root")
)
# Jobs on a few hosts are tried by test_ssh.py.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]

SWITCH = "10.77.0.254"  # where the launcher is
ADDRESSES = [f"10.77.0.{number}" for number in (1, 2, 3)]
JOB = ("-np", "6", "-H", ",".join(f"{address}:2" for address in ADDRESSES))


class Cluster(Launcher):
    """Starts jobs on them."""

    def __init__(self, hosts: networks.Hosts, ssh: sshd.Ssh) -> None:
        super().__init__()
        self.hosts = hosts
        self.ssh = ssh
        self.environment |= {**ssh.environment, "OMP_NUM_THREADS": "1"}

    def launch(self, *arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        """horovodrun where the switch is."""
        command = self.hosts.switch.command(*MODULE, *self.ssh.options, *JOB, *arguments)
        return self.popen(command, env={**self.environment, **changes})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with networks.hosts(3) as hosts:
        hosts.join("br0", "eth0", [f"{address}/24" for address in ADDRESSES], f"{SWITCH}/24")
        folder = tmp_path / "sshd"
        folder.mkdir()
        with sshd.serving_in(folder, dict(zip(ADDRESSES, hosts.nodes, strict=True))) as ssh:
            cluster = Cluster(hosts, ssh)
            yield cluster
            cluster.wait_until_gone(3.0)


def test_a_launcher_that_reaches_no_host_for_a_while_finds_the_ranks_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As long as the user says: ssh, the agents and the ranks wait for it, and nobody ends."""
    log = tmp_path / "log"
    log.touch()
    steps = [sys.executable, str(PROGRAMS / "elastic_steps.py"), "200", "never", "-1", "64", "0.1"]
    job = cluster.launch("--host-timeout", "40", "--min-np", "2", "-x", f"HVD_TEST_LOG={log}", *steps)
    deadline = time.monotonic() + within(20)
    while log.read_text().count(" of 6 step ") < 6:
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.1)
    for action, *how in (("replace", "lladdr", "02:00:00:00:00:01", "nud", "permanent"), ("del",)):
        for node, address in zip(cluster.hosts.nodes, ADDRESSES, strict=True):
            node.run("ip", "neigh", action, SWITCH, "dev", "eth0", *how)
            cluster.hosts.switch.run("ip", "neigh", action, address, "dev", "br0", *how)
        if how:
            time.sleep(14.0)  # by default a host is lost after 8 s, and ssh after 9
    result = cluster.finish(job, 60)
    assert result.returncode == 0 and "generation" not in result.output, result.output
    assert log.read_text().count("has done 200 steps ") == 6, result.output


def test_strangers_get_nothing_and_disturb_nothing(cluster: Cluster) -> None:
    """On every host a program without the job's secret bothers all ports but that of sshd."""
    stranger = [sys.executable, str(Path(networks.__file__).with_name("stranger.py")), "100"]
    everywhere = (cluster.hosts.switch, *cluster.hosts.nodes)
    started = [
        cluster.popen(place.command(*stranger, str(cluster.ssh.port)), stdin=subprocess.PIPE)
        for place in everywhere
    ]
    try:
        program = [sys.executable, str(PROGRAMS / "among_strangers.py"), "4"]
        result = cluster.finish(cluster.launch("--verbose", *program), 90)
        reports = [json.loads(each.communicate(b"", within(10))[0]) for each in started]
    finally:
        for each in started:
            each.kill()
            each.communicate()
    assert result.returncode == 0, result.output
    assert len(re.findall(r"^\[\d\]<stdout>:\d+ reductions$", result.stdout.decode(), re.MULTILINE)) == 6
    # The store is found, and on every host what ranks listen at; an agent listens at nothing.
    assert [host for host, _port in reports[0]["ports"]] == [SWITCH]
    for report in reports:
        _check_heard(report)
    assert "refused a connection from" in result.output


def _check_heard(report: dict[str, Any]) -> None:
    """A well-formed greeting is answered with a random number and a proof of the secret, and no more."""
    assert report["ports"] and sum(report["made"].values()) > 50, report["ports"]
    assert not report["heard"]["silent"] and not report["heard"]["garbage"]
    for said in (*report["heard"]["half"], *report["heard"]["forged"]):
        assert len(bytes.fromhex(said)) == 76 and bytes.fromhex(said)[:8] == b"HVDLINK\0", said


@pytest.mark.parametrize("victim", [0, 2])
def test_a_host_that_is_cut_off_is_named_on_both_sides(cluster: Cluster, tmp_path: Path, victim: int) -> None:
    # Half as much again for a process that the kernel shows running, which here is one of another host, too.
    timeout = {"HOROVOD_PEER_TIMEOUT_SECONDS": "4"}
    launcher = cluster.launch(sys.executable, str(PROGRAMS / "at_work.py"), str(tmp_path), **timeout)
    _wait_for_files(tmp_path, "rank.*")
    cluster.hosts.nodes[victim].run("ip", "link", "set", "eth0", "down")
    cut = time.time()
    result = cluster.finish(launcher, 20)
    errors = _wait_for_files(tmp_path, "error.*")
    own = [line for line in result.output.splitlines() if line.startswith("horovodrun: ")]
    assert result.returncode == 1 and len(own) <= 12
    assert ADDRESSES[victim] in own[0], result.output
    for file in errors:
        host, text = int(file.suffix[1:]) // 2, file.read_text()
        others = range(6) if host == victim else range(2 * victim, 2 * victim + 2)
        assert any(
            f"rank {rank} on {ADDRESSES[rank // 2]} (pid " in text for rank in others if rank // 2 != host
        ), (file, text)
        assert file.stat().st_mtime - cut < within(10), (file, text)


def _wait_for_files(folder: Path, pattern: str) -> list[Path]:
    """Those of six ranks."""
    deadline = time.monotonic() + within(30)
    while len(files := sorted(folder.glob(pattern))) < 6:
        assert time.monotonic() < deadline, files
        time.sleep(0.05)
    return files
