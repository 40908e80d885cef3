"""Runs every group of tests, also after one has failed; one table and the names of what failed are the end.

python scripts/test_all.py test-core test-unit ...       words of the Makefile,
python scripts/test_all.py lint "bench BENCH=--quick"    with variables where one needs some
"""

import re
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

# What pytest and ctest print last.
COUNTS = re.compile(
    r"(?P<failed>\d+) failed|(?P<passed>\d+) passed|(?P<skipped>\d+) skipped|(?P<errors>\d+) errors?\b"
)
CTEST = re.compile(r"\d+% tests passed(?:, (?P<failed>\d+) tests failed)? out of (?P<all>\d+)")

# What they print of a test that failed: pytest, ctest, a program of the core's tests, and ninja.
PYTEST_NAME = re.compile(r"(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$")
CTEST_NAME = re.compile(r"\s+\d+ - (\S+) \(([^)]+)\)")
CORE_CASE = re.compile(r"FAILED (\w+\.\w+)$")
NINJA_NAME = re.compile(r"FAILED: (?:\[code=\d+\] )?(\S+)")

LAST_LINES = 8  # of a group that failed without a name


@dataclass
class Group:
    """How the tests of one word have ended."""

    word: str
    status: int = 0
    seconds: float = 0.0
    counts: str = ""
    failed: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    def read(self, line: str) -> None:
        """Takes what a line of the output says."""
        self.counts = counts(line) or self.counts
        if (name := failed_name(line)) and name not in self.failed:
            self.failed.append(name)
        if line.strip():
            self.last.append(line.rstrip())

    def shown_failures(self) -> list[str]:
        """The names of what failed, or the last lines where there are none."""
        return (self.failed or [*self.last]) if self.status else []


def counts(line: str) -> str:
    """The figures of a runner's closing line in one form; empty when the line is none."""
    if ctest := CTEST.search(line):
        failed, every = int(ctest["failed"] or 0), int(ctest["all"])
        return f"{every - failed} passed" + (f", {failed} failed" if failed else "")
    if not re.search(r"\bin \d+\.\d+s", line):
        return ""
    return ", ".join(match[0] for match in COUNTS.finditer(line))


def failed_name(line: str) -> str:
    """The test that failed, or the file that was not compiled; empty where a line names none."""
    line = line.rstrip()
    if ctest := CTEST_NAME.match(line):
        return f"{ctest[1]} ({ctest[2]})"
    for pattern in (PYTEST_NAME, CORE_CASE, NINJA_NAME):
        if found := pattern.match(line):
            return found[1]
    return ""


def run(word: str) -> Group:
    """One word of the Makefile; its output goes through as it comes."""
    group, begin = Group(word), time.monotonic()
    command = ["make", "--no-print-directory", *word.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            group.read(line)
    group.status, group.seconds = process.returncode, time.monotonic() - begin
    return group


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


def failures(groups: list[Group]) -> str:
    """What failed, by group; empty when nothing did."""
    lines = []
    for group in groups:
        if shown := group.shown_failures():
            lines += [f"Failed in {group.word}:", *(f"  {name}" for name in shown)]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Runs them all; 1 when one has failed."""
    groups = [run(word) for word in words]
    print("\n" + table(groups))
    if text := failures(groups):
        print("\n" + text)
    return int(any(group.status for group in groups))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
