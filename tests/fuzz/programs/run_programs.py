"""Makes random programs from seeds and plays each as a job of real processes; counts what must never happen.

    python tests/fuzz/programs/run_programs.py --seconds 3600          programs of the seeds 1, 2, ...
    python tests/fuzz/programs/run_programs.py --seed 42               one program, described
    python tests/fuzz/programs/run_programs.py --seed 42 --acts 1 4    some of its acts

A program that fails is played again with fewer acts, as long as it still fails, and printed with the output
of its ranks. The status is 1 when anything was counted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ranks"))

import psutil
from load import within
from random_program import Program, make_program
from rank_player import COUNTERS, ranks_play
from rank_server import Ended, RankServer, run_job, serve

GLUE = Path(__file__).resolve().parents[2] / "mp/torch_glue.py"
SECONDS = 40  # of one program on an idle machine; then it hangs
SECONDS_FOR_STACKS = 15
PRELOADED = ["torch", "torch._dynamo", "horovod.torch"]  # the second when an optimizer makes its first step
REPLAYS = 3  # of a smaller program, before it counts as one that does not fail
COUNTED = ("wrong results", "unexpected errors", "hangs", "crashes", "left behind")


@contextmanager
def _stacks_after(seconds: float, folder: Path) -> Iterator[None]:
    """The stacks of all ranks, native frames too, go to the folder when they are not done in time."""
    tool = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")

    def dump() -> None:
        for process in psutil.Process().children(recursive=True):
            command = [tool, "dump", "--native", "--pid", str(process.pid)]
            shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            with (folder / "stacks").open("a") as file:
                file.write(shown.stdout or shown.stderr)

    timer = threading.Timer(seconds, dump)
    if tool:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Stage:
    """Plays programs, and counts."""

    def __init__(self, folder: Path, server: RankServer) -> None:
        self.folder, self.server = folder, server
        self.total: Counter[str] = Counter()

    def play(self, program: Program, only: Sequence[int] | None = None) -> tuple[str, str]:
        """What goes wrong with the program, one of COUNTED, and what there is to read about it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name, _stacks_after(within(SECONDS), Path(name)):
            ended = run_job(
                Path(name), self.server, len(program.hosts), ranks_play,
                [program.seed, None if only is None else list(only)],
                env=program.environment, hosts=program.hosts, timeout=SECONDS + SECONDS_FOR_STACKS,
            )  # fmt: skip
            wrong = judge(ended)
            if wrong:
                stacks = Path(name, "stacks")
                return wrong, ended.output() + (stacks.read_text() if stacks.exists() else "")
            results = [ended.result(rank) for rank in range(ended.size)]
            self.total["operations checked"] += sum(result["checked"] for result in results)
            self.total += Counter({what: results[0][what] for what in COUNTERS})
            text = different(results)
            return ("wrong results" if text else ""), text

    def examine(self, program: Program, reduce: bool) -> None:
        """Plays it, and shows it as small as it fails if it does."""
        wrong, text = self.play(program, [act.number for act in program.acts])
        self.total["programs"] += 1
        self.total[f"over {program.wiring}"] += 1
        if not wrong:
            return
        self.total[wrong] += 1
        small = self.reduced(program) if reduce else program
        acts = " ".join(str(act.number) for act in small.acts)
        print(f"\n{wrong}: --seed {program.seed} --acts {acts}\n{small}\n{text}", flush=True)

    def reduced(self, program: Program) -> Program:
        """Without the acts that it fails without."""
        for act in reversed(program.acts):
            fewer = [other.number for other in program.acts if other is not act]
            if any(self.play(program, fewer)[0] for _ in range(REPLAYS)):
                program = program.only(fewer)
        return program


def judge(ended: Ended) -> str:
    """What the end of a job counts as; empty when it has ended well. A cause goes before what follows."""
    output = ended.output()
    if ended.crashed or any(
        status < 0 for rank, status in enumerate(ended.statuses) if rank not in ended.hanging
    ):
        return "crashes"
    if "WRONG RESULT" in output:
        return "wrong results"
    if any(status > 0 for status in ended.statuses):
        return "unexpected errors"
    if ended.hanging:
        return "hangs"
    return "left behind" if ended.left else ""


def different(results: Sequence[dict]) -> str:
    """The first of what all members of a process set must have been told, and were not."""
    for members in {members for result in results for members in result["told"]}:
        told = [result["told"].get(members, {}) for result in results]
        for occasion in {occasion for texts in told for occasion in texts}:
            texts = [texts.get(occasion) for texts in told]
            if len({*texts} - {None}) > 1:
                return f"the ranks of {members} hold different things, act {occasion}: {texts}"
    return ""


def table(total: Counter[str], seconds: float) -> str:
    """What was done, and what must be 0."""
    done = ["programs", *(f"over {how}" for how in ("shm", "tcp", "hosts")), "operations checked", *COUNTERS]
    rows = [*((what, f"{total[what]:,}") for what in (*done, *COUNTED)), ("seconds", f"{seconds:,.0f}")]
    return "\n".join(f"  {what.replace('_', ' '):20}{number:>12}" for what, number in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Random programs over real processes; counts what must be 0."
    )
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--acts", type=int, nargs="+", help="with --seed: these alone")
    parser.add_argument("--without", nargs="+", default=[], help="kinds of acts, such as Join")
    parser.add_argument("--whole", action="store_true", help="show a program that fails as it is")
    arguments = parser.parse_args()
    begin = time.monotonic()
    with (
        serve(PRELOADED, HVD_TEST_GLUE=str(GLUE)) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        stage = Stage(Path(name), server)
        if arguments.seed is not None:
            program = make_program(arguments.seed).only(arguments.acts)
            print(program, flush=True)
            stage.examine(program, reduce=False)
        for seed in count(arguments.first) if arguments.seed is None else ():
            if time.monotonic() - begin > arguments.seconds:
                break
            program = make_program(seed)
            kept = [act.number for act in program.acts if type(act.deed).__name__ not in arguments.without]
            stage.examine(program.only(kept), reduce=not arguments.whole)
            print(f"\r{time.monotonic() - begin:7.0f} s  seed {seed}", end="", flush=True)
    print("\n" + table(stage.total, time.monotonic() - begin))
    return int(any(stage.total[what] for what in COUNTED))


if __name__ == "__main__":
    sys.exit(main())
