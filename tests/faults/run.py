"""Plays the fault cases that one host can show and prints a table: number, verdict, seconds, limit, case, and
whom the job named where that differs from try to try.

    python tests/faults/run.py [--json FILE] [--jobs N] [--layer P] [CASE ...]

The status is 1 when a case falls short.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))

from cases import TABLE
from fault_case import LAYERS, Case
from stage import Verdict, judge


def main() -> int:
    arguments = _parse()
    wanted = [TABLE[number] for number in sorted(TABLE) if _wanted(TABLE[number], arguments)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        verdicts = list(pool.map(_play, wanted))
    print(_table(verdicts))
    for verdict in verdicts:
        if verdict.word == "falls short":
            print(f"\n--- {verdict.case.number}: {verdict.case.title}\n{verdict.text}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([_record(verdict) for verdict in verdicts], indent=1))
    return int(any(verdict.word == "falls short" for verdict in verdicts))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plays faults of a job and judges what it does.")
    parser.add_argument("cases", nargs="*", type=int, help="numbers; all when none is given")
    parser.add_argument("--layer", choices=LAYERS, help="only those of one layer")
    parser.add_argument("--quick", action="store_true", help="only those of every test run")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts to FILE, too")
    return parser.parse_args()


def _wanted(case: Case, arguments: argparse.Namespace) -> bool:
    if arguments.cases and case.number not in arguments.cases:
        return False
    return arguments.layer in (None, case.layer) and (case.quick or not arguments.quick)


def _play(case: Case) -> Verdict:
    verdict = judge(case)
    if case.play is not None:
        print(f"{case.number:4} {verdict.word:12} {verdict.wall_seconds:6.1f} s  {case.title}", flush=True)
    return verdict


def _table(verdicts: Iterable[Verdict]) -> str:
    rows = list(verdicts)
    lines = ["", f"{'no':>4} l {'verdict':12} {'seconds':>8} {'limit':>6}  case"]
    for row in rows:
        taken = "-" if row.seconds is None else f"{row.seconds:.2f}"
        limit = "-" if row.case.limit is None else f"{row.case.limit:g}"
        why = f" ({row.text})" if row.word == "not here" else f" [{row.culprit}]" if row.culprit else ""
        lines.append(
            f"{row.case.number:4} {row.case.layer} {row.word:12} {taken:>8} {limit:>6}  {row.case.title}{why}"
        )
    count = {word: sum(row.word == word for row in rows) for word in ("ok", "falls short", "not here")}
    return "\n".join([*lines, ", ".join(f"{number} {word}" for word, number in count.items())])


def _record(verdict: Verdict) -> dict[str, object]:
    return {
        "number": verdict.case.number,
        "layer": verdict.case.layer,
        "case": verdict.case.title,
        "verdict": verdict.word,
        "seconds": verdict.seconds,
        "limit": verdict.case.limit,
        "culprit": verdict.culprit,
        "text": verdict.text,
    }


if __name__ == "__main__":
    sys.exit(main())
