"""What HOROVOD_LOG_LEVEL brings to light: who and how, the links, the operations; and nothing by default."""

import re

import pytest
from launch import Job

NO_TIME = {"HOROVOD_LOG_HIDE_TIME": "1"}


def lines_of(level: str, transport: str = "auto") -> list[str]:
    """The records of a small job, without the launcher's prefix."""
    settings = {**NO_TIME, "HOROVOD_LOG_LEVEL": level, "HOROVOD_TRANSPORT": transport}
    result = Job(2, "no_framework.py", env=settings).finish(60)
    assert result.returncode == 0, result.output
    records = re.findall(r"^\[\d\]<stderr>:(\[\d\] \w+: .*)$", result.output, re.MULTILINE)
    return sorted(records)


def has(lines: list[str], pattern: str) -> bool:
    return any(re.match(pattern, line) for line in lines)


def test_nothing_is_told_by_default() -> None:
    assert lines_of("") == []


@pytest.mark.parametrize(
    ("transport", "way"),
    [
        ("auto", r"over shared memory \(all ranks can share it\)"),
        ("tcp", r"over TCP on the loopback interface \(HOROVOD_TRANSPORT=tcp\)"),
    ],
)
def test_info_tells_once_who_and_how(transport: str, way: str) -> None:
    lines = lines_of("INFO", transport)
    assert len(lines) == 2 and all(line.startswith("[0] info: ") for line in lines), lines
    assert has(lines, rf"\[0\] info: 2 ranks on 1 host \(\S+\), {way}, started in \d+\.\d\d s$")
    assert has(lines, r"\[0\] info: \d+ cores? .* a batch closes at 8 MiB or after \d+ us of silence")


def test_debug_tells_of_links_and_process_sets() -> None:
    lines = lines_of("debug", "tcp")
    for rank in range(2):
        own = rf"\[{rank}\] debug: "
        assert has(lines, own + r"listens for other ranks at \S*127\.0\.0\.1:\d+$"), lines
        links = "; ".join(f"{role} to rank {1 - rank}" for role in ("watch", "control", "data"))
        assert has(lines, own + rf"local rank {rank} of 2, pid \d+; launcher: horovodrun; links: {links}$"), (
            lines
        )
        assert has(lines, own + "process set 0: ranks 0, 1, over links$"), lines
    assert not has(lines, r"\[\d\] trace")


def test_trace_tells_of_operations() -> None:
    lines = lines_of("trace")
    for rank in range(2):
        assert has(lines, rf"\[{rank}\] trace: process set 0: \w+ .*, \d+ bytes, in a batch of \d+$"), lines
