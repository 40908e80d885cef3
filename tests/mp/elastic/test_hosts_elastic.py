"""Elastic jobs on three "hosts" by a real sshd: ranks and whole hosts are lost, come and go."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sshd
from elastic_job import TIMES, TRAINS, Story, check_seconds
from launch import MODULE, PROGRAMS
from load import within
from sshd import Hosts

from horovod.elastic.driver.reliability import HEALTHY_SECONDS

HOSTS = ",".join(f"{host}:2" for host in sshd.HOSTS)
STEPS = (sys.executable, str(PROGRAMS / "elastic_steps.py"))
pytestmark = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())


def test_a_rank_of_another_host_is_replaced(hosts: Hosts) -> None:
    words = ("-np", "6", "--min-np", "4", "--spares", "1", "-H", HOSTS)
    status, stdout, stderr = hosts.run(*hosts.command(*words), *STEPS, "20", "step", "4", OMP_NUM_THREADS="1")
    story = Story(status, (stdout + stderr).decode())
    assert status == 0, story.output
    assert set(story.done) >= set(range(6)) - {4} and list(story.deaths) == [4], story.output
    assert "rank 4 (127.0.0.3) was killed by SIGKILL" in story.output
    assert max(story.gaps()) < within(5.0)


def begin(hosts: Hosts, folder: Path, *words: str) -> tuple[subprocess.Popen[bytes], Callable[[], str]]:
    """A job whose output is in a file, and what reads it."""
    path = folder / "output"
    with path.open("wb") as file:
        command = [*MODULE, *hosts.command(*words)]
        environment = {**hosts.environment, "OMP_NUM_THREADS": "1"}
        job = hosts.popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    return job, path.read_text


def wait_for(condition: Callable[[], bool], seconds: float, read: Callable[[], str]) -> float:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + within(seconds), read()
        time.sleep(0.02)
    return time.monotonic() - start


def trained(read: Callable[[], str], size: int, after: float = 0.0) -> bool:
    """Whether all ranks of a generation of this size train, which has begun after a moment."""
    entries = [each for each in TRAINS.findall(read()) if float(each[4]) > after]
    return {int(rank) for rank, of, *_ in entries if int(of) == size} == set(range(size))


@pytest.mark.timeout(3600)
def test_a_whole_host_is_lost_and_comes_back(hosts: Hosts, tmp_path: Path) -> None:
    words = ("-np", "6", "--min-np", "2", "-H", HOSTS, *STEPS, "100000", "never", "-1", "64", "0.02")
    job, read = begin(hosts, tmp_path, *words)
    wait_for(lambda: trained(read, 6), 30, read)
    seconds = []
    for _ in range(TIMES):
        victim = next(agent for agent in hosts.agents() if "127.0.0.2" in agent.environ()["SSH_CONNECTION"])
        lost = [victim, *victim.children(recursive=True)]
        death = time.monotonic()
        for process in lost:
            process.kill()
        seconds.append(wait_for(lambda since=death: trained(read, 4, since), 12, read))
        wait_for(lambda since=death: trained(read, 6, since), 20, read)
        time.sleep(HEALTHY_SECONDS if TIMES > 1 else 0)  # or the host is set aside for longer each time
    # It comes back with the highest ranks, since those of the others stay theirs.
    blamed = re.findall(r"rank \d \(127\.0\.0\.2\): the agent of horovodrun there was killed", read())
    assert len(blamed) == 2 * TIMES, read()
    check_seconds("a whole host", seconds, worst=12.0)
    job.send_signal(signal.SIGTERM)
    assert job.wait(within(15)) == 128 + signal.SIGTERM


def test_a_host_whose_agent_is_stopped_is_left_although_its_ranks_train(hosts: Hosts, tmp_path: Path) -> None:
    words = ("-np", "4", "--min-np", "2", "-H", HOSTS.rpartition(",")[0])
    job, read = begin(hosts, tmp_path, *words, *STEPS, "100000", "never", "-1", "64", "0.02")
    wait_for(lambda: trained(read, 4), 30, read)
    agent = next(each for each in hosts.agents() if "127.0.0.2" in each.environ()["SSH_CONNECTION"])
    moment = time.monotonic()
    agent.suspend()
    wait_for(lambda: trained(read, 2, moment), 14, read)
    wait_for(lambda: trained(read, 4, moment), 20, read)
    agent.resume()  # it ends its own workers, and not those of the agent that has taken its place
    time.sleep(2)
    assert "killed" not in read() and "generation 4" not in read(), read()
    job.send_signal(signal.SIGTERM)
    assert job.wait(within(15)) == 128 + signal.SIGTERM


def offer(listing: Path, lines: str) -> None:
    """The script reads all of the old text or all of the new."""
    fresh = listing.with_suffix(".new")
    fresh.write_text(lines)
    fresh.rename(listing)


def test_hosts_of_a_script_come_and_go(hosts: Hosts, tmp_path: Path) -> None:
    listing, script = tmp_path / "hosts", tmp_path / "discover.sh"
    offer(listing, "127.0.0.1:2\n")
    script.write_text(f"#!/bin/sh\ncat {listing}\n")
    script.chmod(0o755)
    words = ("-np", "2", "--min-np", "1", "--host-discovery-script", str(script))
    job, read = begin(hosts, tmp_path, *words, *STEPS, "100000", "never", "-1", "64", "0.02")
    wait_for(lambda: trained(read, 2), 30, read)
    offer(listing, "127.0.0.1:2\n127.0.0.3:2\n")
    moment = time.monotonic()
    wait_for(lambda: trained(read, 4, moment), 30, read)
    offer(listing, "127.0.0.3:2\n")
    moment = time.monotonic()
    wait_for(lambda: trained(read, 2, moment), 30, read)
    offer(listing, "what is this?\n")
    time.sleep(3)
    assert "'what is this?' is no host" in read()
    moment = time.monotonic()
    offer(listing, "127.0.0.3:1\n127.0.0.2:2\n")
    wait_for(lambda: trained(read, 3, moment), 30, read)
    assert "killed" not in read() and "failed" not in read(), read()
    job.send_signal(signal.SIGTERM)
    assert job.wait(within(15)) == 128 + signal.SIGTERM


def test_a_host_that_is_about_to_go_is_left_and_one_that_stays_after_all_is_used(
    hosts: Hosts, tmp_path: Path
) -> None:
    notice = tmp_path / "notice.127.0.0.2"
    words = ("-np", "4", "--min-np", "2", "-H", HOSTS.rpartition(",")[0])
    words = (*words, "--preemption-file", str(tmp_path / "notice.{host}"))
    job, read = begin(hosts, tmp_path, *words, *STEPS, "100000", "never", "-1", "64", "0.02")
    wait_for(lambda: trained(read, 4), 30, read)
    moment = time.monotonic()
    notice.touch()
    wait_for(lambda: trained(read, 2, moment), 10, read)
    wait_for(lambda: len(re.findall("leaves with status 143", read())) == 2, 5, read)
    time.sleep(2)
    assert "127.0.0.2 is about to go" in read() and "generation 3" not in read(), read()
    moment = time.monotonic()
    notice.unlink()
    wait_for(lambda: trained(read, 4, moment), 20, read)
    assert "killed" not in read() and "failed" not in read(), read()
    job.send_signal(signal.SIGTERM)
    assert job.wait(within(15)) == 128 + signal.SIGTERM
