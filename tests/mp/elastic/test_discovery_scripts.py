"""What a discovery script says of the hosts, and what becomes of the job. Both names are of this host."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_job import KILLED, TIMES, TRAINS, check_seconds
from launch import MODULE, PROGRAMS, Launcher
from load import within

STARTS_AGAIN = re.compile(r"^horovodrun: generation (\d+): (\d+) ranks?", re.MULTILINE)


class Job:
    """A job of ``elastic_steps.py`` whose hosts a script prints."""

    def __init__(self, folder: Path, prints: str, *options: str, words: tuple[str, ...] = ("never", "-1")):
        self.launcher, self.script, self.log = Launcher(), folder / "discover", folder / "log"
        self.said = folder / "said"
        self.log.touch()
        self.says(prints)
        program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), "1000000", *words, "64", "0.02")
        with self.said.open("wb") as said:
            self.process = self.launcher.popen(
                [*MODULE, *options, "--host-discovery-script", str(self.script), *program],
                env={**self.launcher.environment, "OMP_NUM_THREADS": "1", "HVD_TEST_LOG": str(self.log)},
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def says(self, hosts: str) -> None:
        """The script prints this from now on."""
        self.does(f"cat <<'end'\n{hosts}\nend")

    def does(self, commands: str) -> None:
        """The script does this from now on."""
        new = self.script.with_suffix(".new")
        new.write_text(f"#!/bin/sh\n{commands}\n")
        new.chmod(0o700)
        new.rename(self.script)

    def workers(self, size: int, after: float = 0.0) -> set[int]:
        """Those that have begun to train in a generation of this size since then; empty: not all have."""
        found = {
            int(rank): int(worker)
            for rank, of, _, worker, when in TRAINS.findall(self.log.read_text())
            if int(of) == size and float(when) > after
        }
        return set(found.values()) if len(found) == size else set()

    def wait_for(self, condition: Callable[[], object], seconds: float = 30) -> float:
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() < begin + within(seconds), self.said.read_text() + self.log.read_text()
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(0.02)
        return time.monotonic() - begin

    def generations(self) -> list[int]:
        """How many ranks those have had that followed the first."""
        return [int(size) for _, size in STARTS_AGAIN.findall(self.said.read_text())]

    def end(self) -> str:
        self.process.terminate()
        assert self.launcher.end_within(self.process, 20) == 143, self.said.read_text()
        self.launcher.wait_until_gone(5)
        return self.said.read_text()


HOSTS = "localhost:1\n127.0.0.1:1"
FLAPS = """
mkdir {0} 2> /dev/null && echo localhost:1 || { rmdir {0}; echo localhost:1; echo 127.0.0.1:1; }
"""
# What a script does, and what is told of it.
CASES = [
    ("printf '127.0.0.1:1\\nlocalhost:1\\n'", ""),  # in another order
    (FLAPS, ""),
    ("exit 3", "it ended with exit status 3"),
    ("echo '<html>502 Bad Gateway</html>'", "'<html>502 Bad Gateway</html>' is no host"),
    ("echo 'kubectl: no such context' >&2; exit 2", "exit status 2 (kubectl: no such context)"),
]
MORE = [
    ("printf '\\n  localhost:1  \\n\\n127.0.0.1:1\\r\\n\\n'", ""),
    ("printf '# two hosts\\nlocalhost:1\\n  # the other\\n127.0.0.1:1\\n'", ""),
    ("kill -9 $$", "it ended with exit status 137"),
    ("echo localhost:1; echo 127.0.0.1", "'127.0.0.1' has no slots"),
    ("echo localhost:-1", "'localhost:-1' is no host"),
    ("head -c 4096 /dev/urandom", ""),
    ("yes localhost:1 | head -c 3000000", "it has written more than 1048576 bytes"),
]


@pytest.mark.parametrize("cases", [CASES, pytest.param(MORE, marks=pytest.mark.full)], ids=["usual", "rare"])
def test_a_script_that_says_nothing_new_or_nothing_useful_disturbs_nobody(
    tmp_path: Path, cases: list[tuple[str, str]]
) -> None:
    job = Job(tmp_path, HOSTS, "-np", "2", "--min-np", "1")
    job.wait_for(lambda: job.workers(2))
    for commands, warning in cases:
        job.does(commands.replace("{0}", str(tmp_path / "flag")))
        if warning:
            job.wait_for(lambda text=warning: text in job.said.read_text(), 15)
        else:
            time.sleep(3.5)
    job.script.unlink()
    job.wait_for(lambda: "exit status 127" in job.said.read_text(), 15)
    assert job.generations() == []
    said = job.end()
    assert "the hosts stay as they were" in said and "failed" not in said


def test_hosts_and_slots_come_and_go(tmp_path: Path) -> None:
    job = Job(tmp_path, "localhost:1", "-np", "1", "--min-np", "1", "--slots-per-host", "2")
    job.wait_for(lambda: job.workers(1))
    for hosts, size in (
        ("localhost:1\n127.0.0.1", 3),  # the other has 2 slots, as all without a number
        ("localhost:2\n127.0.0.1", 4),
        ("localhost:1\n127.0.0.1", 3),
        ("127.0.0.1:3", 3),
        ("localhost:1\n127.0.0.1:0", 1),
    ):
        moment = time.monotonic()
        job.says(hosts)
        job.wait_for(lambda size=size, moment=moment: job.workers(size, moment))
    said = job.end()
    assert "killed" not in said and "failed" not in said and "warning" not in said


def test_a_listing_without_hosts_takes_them_all(tmp_path: Path) -> None:
    """Nobody trains until there are hosts again."""
    job = Job(tmp_path, "localhost:2", "-np", "2", "--min-np", "1")
    job.wait_for(lambda: job.workers(2))
    job.says("")
    job.wait_for(lambda: "it lists no host with slots; the job waits for hosts" in job.said.read_text(), 15)
    moment = time.monotonic()
    time.sleep(1.0)
    job.says("localhost:1")
    job.wait_for(lambda: job.workers(1, moment))
    assert "failed" not in job.end()


def test_a_host_that_comes_back_soon_has_to_stay_for_a_while(tmp_path: Path) -> None:
    both = "localhost:1\n127.0.0.1:1"
    options = ("-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.25", "8")
    job = Job(tmp_path, both, *options)
    job.wait_for(lambda: job.workers(2))
    for times in (1, 2):
        moment = time.monotonic()
        job.says("localhost:1")
        job.wait_for(lambda moment=moment: job.workers(1, moment))
        job.says(both)
        job.wait_for(lambda moment=moment: job.workers(2, moment))
        assert times == 1 or time.monotonic() > moment + 4.0
    said = re.findall("127.0.0.1 goes and comes back: .* stayed for [24] s", job.end())
    assert len(said) == 1


@pytest.mark.timeout(3600)
def test_a_job_grows_and_shrinks_at_once(tmp_path: Path) -> None:
    """One host loses as many slots as another gets."""
    job = Job(tmp_path, "localhost:3\n127.0.0.1:1", "-np", "4", "--min-np", "1", "--max-np", "4")
    job.wait_for(lambda: job.workers(4))
    seconds = []
    for turn in range(TIMES):
        moment, before = time.monotonic(), job.workers(4)
        job.says("localhost:1\n127.0.0.1:3" if turn % 2 == 0 else "localhost:3\n127.0.0.1:1")
        seconds.append(job.wait_for(lambda moment=moment: job.workers(4, moment), 30))
        stay = before & job.workers(4, moment)
        assert len(stay) == 2, (before, job.workers(4, moment), job.said.read_text())
        before = job.workers(4, moment)
    said = job.end()
    assert "killed" not in said and "failed" not in said and "warning" not in said
    # The listing is asked for each second, and slots have to be missing in it twice.
    check_seconds("grows and shrinks at once", seconds, 8.0, 15.0)


def test_a_host_where_workers_fail_again_and_again_is_set_aside_and_tried_later(tmp_path: Path) -> None:
    words = ("before,before,before,before", "2,3,4,5")  # those of the second host
    options = ("-np", "2", "--min-np", "2", "--blacklist-cooldown-range", "1", "2")
    job = Job(tmp_path, "localhost:2\n127.0.0.1:1", *options, words=words)
    job.wait_for(lambda: job.workers(3), 60)
    said = job.end()
    assert {host for *_, host in KILLED.findall(said)} == {"127.0.0.1"}
    assert len(KILLED.findall(said)) == 4
    pauses = re.findall(r"\(127\.0\.0\.1\) .*no worker is started on that host for \d+ s", said)
    assert len(pauses) == 2, said
