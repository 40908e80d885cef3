"""What the report says of a rank that crashed."""

import re
import signal

import pytest
from launch import Job, Result
from load import within


def crash(misdeed: str) -> tuple[Result, list[str]]:
    result = Job(2, "misbehave.py", misdeed).finish(within(40))
    report = [line for line in result.output.splitlines() if not line.startswith("[")]
    return result, report


@pytest.mark.parametrize(
    ("misdeed", "number", "error", "function"),
    [
        ("crash", signal.SIGSEGV, "Segmentation fault", "string_at"),
        ("abort", signal.SIGABRT, "Aborted", "main"),
    ],
)
def test_a_crash_is_reported_with_signal_build_and_python_stack(
    misdeed: str, number: signal.Signals, error: str, function: str
) -> None:
    result, report = crash(misdeed)
    assert result.returncode == 128 + number, result.output
    assert re.match(
        rf"horovodrun: rank 1 \(localhost, pid \d+\) failed first: killed by {number.name}; ", report[0]
    ), result.output
    assert re.match(r"horovodrun: it ran horovod [\d.a-z]+, build id of the core [0-9a-f]{40}$", report[1])
    start = report.index("horovodrun: rank 1 crashed, innermost call first:")
    assert report[start + 1] == f"  Fatal Python error: {error}"
    assert re.match(rf"  File \".*\", line \d+ in {function}$", report[start + 2]), report
    assert any(line.endswith("in main") for line in report) and len(report) <= 12
