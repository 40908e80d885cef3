"""Jobs of four ranks with a random fault each, for as long as you say; what must never happen is counted.

    python tests/faults/soak.py [--seconds S] [--seed N]

The status is 1 when anything was counted. A seed and the number of a round give the same fault again.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))

from cases_process import KILLED, WHO
from cases_resources import private_mounts
from load import within
from trial import WRONG_RESULT, Trial

RANKS = 4
JOB_SECONDS = 10.0
COUNTED = ("wrong results", "hangs", "leftovers", "wrong culprits", "wrong statuses", "too late")


@dataclass(frozen=True)
class Plan:
    """One round: the fault, whom it strikes, and over what the ranks talk."""

    fault: str
    victim: int
    peer: int
    transport: str
    link: str
    after: float
    seed: int

    def __str__(self) -> str:
        where = f" ({self.link} link to rank {self.peer})" if self.fault == "reset" else ""
        return f"{self.fault} of rank {self.victim}{where} over {self.transport} after {self.after:.1f} s"


@dataclass(frozen=True)
class Fault:
    """How a fault is brought about, and how the job must end: status, headline, seconds."""

    bring: Callable[[Trial, Plan], None]
    status: int = 0
    headline: str = ""
    limit: float | None = None


def _stop_for_a_while(job: Trial, plan: Plan) -> None:
    job.send(signal.SIGSTOP, plan.victim)
    time.sleep(1.0 + plan.after % 1.0)
    job.send(signal.SIGCONT, plan.victim)


def _signal(number: int) -> Callable[[Trial, Plan], None]:
    return lambda job, plan: job.send(number, plan.victim)


def _nothing(job: Trial, plan: Plan) -> None:
    """The fault is there from the start."""


FAULTS = {
    "kill": Fault(_signal(signal.SIGKILL), KILLED, "{victim} .*killed by SIGKILL", 1.0),
    "stop": Fault(_stop_for_a_while),
    "freeze": Fault(_signal(signal.SIGSTOP), 1, r"{victim} stopped responding \(state T", 10.0),
    "exit 0": Fault(_signal(signal.SIGUSR1), 1, "{victim} ended too early, with exit status 0", 2.5),
    "reset": Fault(_signal(signal.SIGUSR2), 1, "the {link} link between {ends} broke", 2.5),
    "full disk": Fault(_nothing),
    "none": Fault(_nothing),
}


def plan(dice: random.Random) -> Plan:
    """A round, drawn."""
    victim, peer = dice.sample(range(RANKS), 2)
    transport = dice.choice(["shm", "tcp"])
    link = dice.choice(["watch", "control", "data"]) if transport == "tcp" else "watch"
    fault = dice.choice([*FAULTS, "kill", "freeze", "exit 0", "reset"])
    return Plan(fault, victim, peer, transport, link, dice.uniform(0.2, 5.0), dice.randrange(1 << 30))


def expected(plan: Plan) -> Fault:
    """How the job must end: well, when the link that breaks carries nothing.

    Announcements go to rank 0 and responses come from it; other control links serve sets without rank 0.
    """
    fault = FAULTS[plan.fault]
    if plan.fault == "reset" and plan.link == "control" and 0 not in (plan.victim, plan.peer):
        return Fault(fault.bring)
    return fault


def play(plan: Plan) -> tuple[Counter[str], str]:
    """One round; returns what went wrong, and the output where something did."""
    options: list[str] = []
    wrap: list[str] = []
    if plan.fault == "full disk":
        wrap = private_mounts("mount -t tmpfs -o size=64k none /mnt")
        options = ["--output-filename", "/mnt/logs", "--timeline-filename", "/mnt/timeline.json"]
    fault = expected(plan)
    job = Trial(
        RANKS, "endless:train", JOB_SECONDS, plan.seed, plan.link, plan.peer,
        env={"HOROVOD_TRANSPORT": plan.transport}, options=options, wrap=wrap,
    )  # fmt: skip
    try:
        job.running()
        time.sleep(plan.after)
        fault.bring(job, plan)
        wrong = _judge(job, fault, plan)
        return wrong, job.output if wrong else ""
    finally:
        job.close()


def _judge(job: Trial, fault: Fault, plan: Plan) -> Counter[str]:
    wrong: Counter[str] = Counter()
    try:
        status = job.end(JOB_SECONDS + 30)
    except AssertionError:
        return Counter({"hangs": 1})
    victim, ends = WHO.format(plan.victim), sorted((plan.victim, plan.peer))
    named = fault.headline.format(
        victim=victim, link=plan.link, ends=" and ".join(WHO.format(each) for each in ends)
    )
    wrong["wrong results"] += WRONG_RESULT in job.output
    wrong["wrong statuses"] += status != fault.status
    wrong["wrong culprits"] += bool(named) and not re.search(named, (job.report() or [""])[0])
    wrong["too late"] += fault.limit is not None and job.seconds > within(fault.limit)
    if fault.status == 0:
        wrong["wrong results"] += job.output.count("all results are right") != RANKS
    try:
        job.must_be_clean()
    except AssertionError:
        wrong["leftovers"] += 1
    return +wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Jobs with random faults; counts what must never happen.")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begin, total, played = time.monotonic(), Counter[str](), Counter[str]()
    while time.monotonic() - begin < arguments.seconds:
        number = sum(played.values())
        drawn = plan(random.Random(arguments.seed * 1_000_003 + number))
        wrong, output = play(drawn)
        played[drawn.fault] += 1
        total += wrong
        word = ", ".join(wrong) or "ok"
        print(f"{time.monotonic() - begin:7.0f} s  round {number}: {drawn}: {word}", flush=True)
        if output:
            print(output, flush=True)
    rounds = ", ".join(f"{count} {fault}" for fault, count in sorted(played.items()))
    print(f"\n{sum(played.values())} rounds in {time.monotonic() - begin:.0f} s: {rounds}")
    print("\n".join(f"{what:16} {total[what]}" for what in COUNTED))
    return int(total.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
