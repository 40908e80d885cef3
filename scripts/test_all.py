"""Runs every group of tests, also after one has failed, and ends with one table.

python scripts/test_all.py test-core test-unit ...     words of the Makefile
"""

import re
import subprocess
import sys
import time
from dataclasses import dataclass

# What pytest and ctest print last.
COUNTS = re.compile(
    r"(?P<failed>\d+) failed|(?P<passed>\d+) passed|(?P<skipped>\d+) skipped|(?P<errors>\d+) errors?\b"
)
CTEST = re.compile(r"\d+% tests passed(?:, (?P<failed>\d+) tests failed)? out of (?P<all>\d+)")


@dataclass
class Group:
    """How the tests of one word have ended."""

    word: str
    status: int
    seconds: float
    counts: str


def counts(line: str) -> str:
    """The figures of a runner's closing line in one form; empty when the line is none."""
    if ctest := CTEST.search(line):
        failed, every = int(ctest["failed"] or 0), int(ctest["all"])
        return f"{every - failed} passed" + (f", {failed} failed" if failed else "")
    if not re.search(r"\bin \d+\.\d+s", line):
        return ""
    return ", ".join(match[0] for match in COUNTS.finditer(line))


def run(word: str) -> Group:
    """One word of the Makefile; its output goes through as it comes."""
    begin, last = time.monotonic(), ""
    command = ["make", "--no-print-directory", word]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last = counts(line) or last
    return Group(word, process.returncode, time.monotonic() - begin, last)


def table(groups: list[Group]) -> str:
    """A row a group."""
    rows = [("", "seconds", "result", "tests")]
    for group in groups:
        result = "passed" if group.status == 0 else "FAILED"
        rows.append((group.word, f"{group.seconds:.0f}", result, group.counts or "none counted"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"  {word:<{widths[0]}}  {seconds:>{widths[1]}}  {result:<{widths[2]}}  {tests}"
        for word, seconds, result, tests in rows
    ]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Runs them all; 1 when one has failed."""
    groups = [run(word) for word in words]
    print("\n" + table(groups))
    return int(any(group.status for group in groups))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
