"""A worker on one of three "hosts" is killed in each phase of an elastic job, and whole hosts are."""

import subprocess

import pytest
import sshd
from elastic_job import KILLED, TIMES, check_seconds, run
from sshd import Hosts

RANKS, STEPS = 4, 20
# Room for one more rank than there are, so that the spare can take any place.
OPTIONS = ("--min-np", "2", "--max-np", str(RANKS), "--spares", "1")
LISTED = ",".join(f"{host}:2" for host in sshd.HOSTS)
EARLY = ("rendezvous", "sync")  # nobody has trained yet
PHASES = [
    "inside",
    "reset",
    *(pytest.param(each, marks=pytest.mark.full) for each in (*EARLY, "step", "commit")),
]
# Who is lost on one host is tried by test_lost_workers.py.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())]


class Launched(Hosts):
    """``Hosts`` for the harness, which gives options of the job only."""

    def start(self, *arguments: str, **changes: str) -> "subprocess.Popen[bytes]":
        return super().start(*self.command("-H", LISTED, *arguments), **changes)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("phase", PHASES)
def test_the_others_go_on_and_a_spare_takes_the_place(ssh: sshd.Ssh, phase: str) -> None:
    seconds = []
    for time in range(TIMES):
        dead = [time % RANKS] if phase != "reset" else [time % RANKS, (time + 1) % RANKS]
        phases = phase if phase != "reset" else "step,reset"
        size, steps = (64 << 20, 8) if phase == "inside" else (64, STEPS)
        words = (phases, ",".join(map(str, dead)), size)
        story = run(RANKS, *OPTIONS, steps=steps, words=words, launcher=Launched(ssh))
        if phase in ("rendezvous", "sync", "inside") and not story.deaths:
            continue  # it was through before its time had come
        story.check(RANKS, steps, dead)
        for (_, number, host), victim in zip(KILLED.findall(story.output), dead, strict=True):
            assert int(number) == victim and host == sshd.HOSTS[victim // 2], story.output
        seconds += story.start() if phase in EARLY else story.gaps()
    check_seconds(f"over ssh, {phase}", seconds)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_who_dies_when_the_work_is_done_does_not_fail_the_job(ssh: sshd.Ssh) -> None:
    for time in range(TIMES):
        words = ("shutdown", time % RANKS)
        story = run(RANKS, *OPTIONS, steps=STEPS, words=words, launcher=Launched(ssh))
        assert story.status == 0, story.output
        assert len(story.done) == RANKS
