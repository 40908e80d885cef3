"""Elastic jobs whose hosts are names of this one: all of them change, and jobs inside of jobs."""

import sys
from pathlib import Path

from elastic_job import TRAINS, Story
from launch import PROGRAMS, Launcher

INSIDE = """
from horovod.common import basics as hvd
hvd.init()
print(f"inside: {hvd.rank()} of {hvd.size()}")
hvd.shutdown()
"""


def test_a_job_moves_to_other_hosts_with_its_state(tmp_path: Path) -> None:
    """Both names are of this host, so that it needs no ssh."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    script = tmp_path / "discover"
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o700)
    launcher = Launcher()
    words = ("-np", "2", "--min-np", "2", "--host-discovery-script", str(script))
    program = (sys.executable, str(PROGRAMS / "elastic_steps.py"), "250", "never", "-1", "64", "0.03")
    process = launcher.start(*words, *program, OMP_NUM_THREADS="1")
    assert process.stdout is not None
    begun = process.stdout.readline()
    while b"trains as rank" not in begun:
        begun = process.stdout.readline()
    fresh = tmp_path / "fresh"
    fresh.write_text("127.0.0.1:2\n")
    fresh.rename(hosts)  # the script reads all of it or nothing
    result = launcher.finish(process, 60)
    story = Story(result.returncode, begun.decode() + result.output)
    assert story.status == 0, story.output
    assert {worker: each[0] for worker, each in story.done.items()} == {2: 250, 3: 250}, story.output
    firsts = {int(worker): int(step) for _, _, step, worker, _ in TRAINS.findall(story.output)}
    assert firsts[2] > 1 and firsts[3] > 1, story.output  # they go on where the others were


def test_a_job_may_be_started_from_a_worker_of_an_elastic_one() -> None:
    launcher = Launcher()
    outer = {"HOROVOD_ELASTIC_WORKER": "3", "HOROVOD_ELASTIC_ADDR": "unix:@nobody"}
    for words in ((), ("--min-np", "2")):
        status, stdout, stderr = launcher.run("-np", "2", *words, sys.executable, "-c", INSIDE, **outer)
        assert status == 0, stderr
        assert sorted(line.split(b":", 1)[1] for line in stdout.splitlines()) == [
            b"inside: 0 of 2",
            b"inside: 1 of 2",
        ]


def test_workers_do_not_inherit_who_their_launcher_is_in_an_outer_job() -> None:
    names = [f"{scope}{extent}" for scope in ("", "LOCAL_") for extent in ("RANK", "WORLD_SIZE")]
    names += [f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE", "STORE_ADDR")]
    names.append("HOROVOD_RESTART")
    words = ("-np", "1", "--min-np", "1", "sh", "-c", f"echo {' '.join(f'${name}' for name in names)}.")
    status, stdout, stderr = Launcher().run(*words, **dict.fromkeys(names, "7"))
    assert status == 0, stderr
    assert stdout.split(b":", 1)[1].split() == [b"."]


LEAVES_ONE = """
if [ -f pid ]; then
    sleep 0.5
    kill -0 $(cat pid) 2> /dev/null && echo alive || echo gone
else
    sleep 300 &
    echo $! > pid
    kill -9 $$
fi
"""


def test_nothing_is_left_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    """What it has started may hold the GPU of the next one, or be the rank itself."""
    launcher = Launcher()
    words = ("-np", "1", "--min-np", "1", "sh", "-c", f"cd {tmp_path}\n{LEAVES_ONE}")
    status, stdout, stderr = launcher.run(*words)
    assert status == 0, stderr
    assert stdout == b"[w1]<stdout>:gone\n"
