"""Layer N between hosts: namespaces behind a switch that loses, delays or cuts what goes from one to another.

Host i has the address 10.77.0.(i + 1) and ranks 2 i and 2 i + 1; horovodrun is at 10.77.0.254.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import networks
from fault_case import NotHere, case
from stage import Stage
from trial import Trial

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mp"))
import sshd

ALIVE = r"rank \d \(10.77.0.\d, pid \d+\) did not hear rank \d \(10.77.0.\d, pid \d+\) while both were alive"
ONE_OF = rf"(rank \d \(10.77.0.\d, pid \d+\) stopped responding|{ALIVE})"


@dataclass
class Cluster:
    """Two hosts, and what is between them."""

    stage: Stage
    hosts: networks.Hosts
    ssh: sshd.Ssh
    rule: Callable[..., None]

    def job(self, *scene: object, local_size: int = 2, options: tuple[str, ...] = (), **env: str) -> Trial:
        """So many ranks on each host."""
        where = ("-H", f"10.77.0.1:{local_size},10.77.0.2:{local_size}")
        return self.stage.job(
            2 * local_size, *scene, options=[*self.ssh.options, *where, *options],
            env={**self.ssh.environment, **env}, wrap=self.hosts.switch.command(),
        )  # fmt: skip

    def cut(self, job: Trial, source: int | str, target: int | str, **changes: float) -> None:
        """The clock of the fault starts here."""
        job.running()
        job.fault_at = time.time()
        self.rule(source, target, **changes)

    def data_port(self) -> int:
        """One that only the busiest connection between the two hosts has."""
        shown = self.hosts.nodes[0].run("ss", "-tinH", "state", "established").splitlines()
        found = []
        for line, details in zip(shown[::2], shown[1::2], strict=True):
            sent = re.search(r"bytes_sent:(\d+)", details)
            if sent and " 10.77.0.2:" in line:
                near, far = (int(word.rpartition(":")[2]) for word in line.split()[2:4])
                found.append((int(sent[1]), near, far))
        listening = {
            int(line.split()[3].rpartition(":")[2])
            for node in self.hosts.nodes
            for line in node.run("ss", "-tlnH").splitlines()
        }
        _, near, far = max(found)
        return far if near in listening else near


@contextlib.contextmanager
def cluster(stage: Stage) -> Iterator[Cluster]:
    """Raises NotHere where this machine lets no such hosts be made."""
    why = sshd.missing() or networks.why_not() or ("" if os.geteuid() == 0 else "sshd there needs root")
    why = why or ("" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "no /dev/net/tun")
    if why:
        raise NotHere(why)
    addresses = ["10.77.0.1", "10.77.0.2"]
    folder = Path(stage.folder())
    with networks.hosts(2) as hosts:
        ends = [f"{address}/24" for address in addresses]
        with hosts.join_by_switch(ends, "10.77.0.254/24") as rule:
            with sshd.serving_in(folder, dict(zip(addresses, hosts.nodes, strict=True))) as ssh:
                yield Cluster(stage, hosts, ssh, rule)


def ended(stage: Stage, job: Trial, headline: str, *says: str) -> None:
    """The job has failed in time. Said with the output, for the network is gone."""
    stage.fails(job, 1, headline, *says, timeout=60)


@case(28, "N", "one host does not hear another, which hears it", limit=12.0)
def cut_one_way(stage: Stage) -> None:
    for source, target in ((0, 1), (1, 0)):
        with cluster(stage) as made:
            job = made.job("network:go_on", 120)
            made.cut(job, source, target, cut=1)
            ended(stage, job, rf"{ONE_OF}|works one way only")
            assert "closes sockets" not in "".join(job.report()), job.output


@case(33, "N", "a network of 1 Mbit/s with queues short and long", limit=None)
def saturated(stage: Stage) -> None:
    for queue, elements in ((64_000, 100_000), (64_000, 1_000_000), (1_500_000, 100_000)):
        with cluster(stage) as made:
            job = made.job("network:go_on", 20, elements)
            made.cut(job, 0, 1, rate=1e6, queue=queue)
            stage.succeeds(job, timeout=240)


@case(42, "N", "large packets are lost", limit=20.0)
def large_packets(stage: Stage) -> None:
    with cluster(stage) as made:
        job = made.job("network:go_on", 120)
        made.cut(job, 0, 1, mtu=1300)
        ended(stage, job, r"the data link between .* broke while both were alive", "MTU")


def one_connection(made: Cluster, job: Trial) -> None:
    job.running()
    port = made.data_port()
    made.cut(job, "*", "*", port=port)


@case(106, "N", "one data connection of two hosts carries nothing, all else does", limit=12.0, quick=True)
def one_connection_lost(stage: Stage) -> None:
    with cluster(stage) as made:
        job = made.job("network:go_on", 120)
        one_connection(made, job)
        ended(stage, job, r"the data link between .* broke while both were alive", "carries nothing")


@case(114, "N", "a rank is stopped for longer than others are silent, and goes on")
def stopped_for_longer(stage: Stage) -> None:
    with cluster(stage) as made:
        job = made.job("network:go_on", 20, HOROVOD_STOPPED_TIMEOUT_SECONDS="120")
        job.send(signal.SIGSTOP, 3)
        time.sleep(10)
        job.send(signal.SIGCONT, 3)
        stage.succeeds(job, r"rank 3 .* \(process is stopped\)\. The job waits", timeout=60)
