"""Prefixing of output, tails, reports and the sink that writes."""

import os
import pty
import re
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.runner import output, sink
from horovod.runner.arbitration import Cause
from horovod.runner.ending import Exit
from horovod.runner.output import ERASE_LINE, LinePrefixer, Tail, TerminalPrefixer, emphasized
from horovod.runner.rank_output import RankOutput
from horovod.runner.report import Failure, Process, failure_report
from horovod.runner.sink import Sink

_LABEL = "[3]<stdout>:"
_pieces = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"a\nb"])
_chunks = st.lists(st.one_of(st.binary(max_size=12), _pieces), max_size=12)


def _expected(data: bytes) -> bytes:
    lines = data.split(b"\n")
    whole = b"".join(_LABEL.encode() + line + b"\n" for line in lines[:-1])
    return whole + (_LABEL.encode() + lines[-1] if lines[-1] else b"")


@given(_chunks)
def test_prefixed_output_is_the_same_whatever_the_pieces(chunks: list[bytes]) -> None:
    prefixer = LinePrefixer(_LABEL)
    pieces = [prefixer.feed(chunk) for chunk in chunks]
    assert all(piece == b"" or piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces) + prefixer.take_rest() == _expected(b"".join(chunks))


def test_timestamp_comes_first() -> None:
    text = LinePrefixer(_LABEL, timestamps=True).feed(b"a\nb\n").decode()
    for line, body in zip(text.splitlines(), "ab", strict=True):
        stamp, _, rest = line.partition("[")
        time.strptime(stamp)
        assert "[" + rest == _LABEL + body


def test_endless_line_is_cut() -> None:
    prefixer = LinePrefixer(_LABEL)
    piece = b"x" * 65536
    produced = b"".join(prefixer.feed(piece) for _ in range(2 * output.MAX_LINE // len(piece) + 4))
    lines = produced.splitlines()
    assert len(lines) == 2 and all(len(line) <= output.MAX_LINE + len(piece) + len(_LABEL) for line in lines)


def test_progress_bar_is_shown_before_its_line_ends() -> None:
    prefixer = LinePrefixer(_LABEL)
    assert prefixer.feed(b"\r10%\r20%") == b"" and prefixer.has_progress
    assert prefixer.take_progress() == _LABEL.encode() + b"\r10%\r"
    assert not prefixer.has_progress and prefixer.take_progress() == b""
    assert prefixer.feed(b" done\n") == _LABEL.encode() + b"20% done\n"


def test_a_terminal_shows_the_last_version_within_its_width() -> None:
    prefixer = TerminalPrefixer("\x1b[36m[3]:\x1b[0m", False, lambda: 14)
    assert prefixer.feed(b"start\n\r10%\r20%") == b"\x1b[36m[3]:\x1b[0mstart\n"
    bar = ERASE_LINE + b"\x1b[36m[3]:\x1b[0m"
    assert prefixer.take_progress() == bar + b"20%"
    assert not prefixer.has_progress and prefixer.take_progress() == b""
    assert prefixer.feed("█".encode() * 20) == b""
    assert prefixer.take_progress().decode() == bar.decode() + "20%" + "█" * 6
    assert prefixer.feed(b"\r100%\r\nend\n") == bar + b"100%\n\x1b[36m[3]:\x1b[0mend\n"
    assert prefixer.take_rest() == b""


def test_colours_take_no_room_and_are_ended_behind_what_is_cut() -> None:
    prefixer = TerminalPrefixer("[3]:", False, lambda: 10)
    prefixer.feed(b"\r50%|\x1b[32m######\x1b[0m| 5/10")
    assert prefixer.take_progress() == ERASE_LINE + b"[3]:50%|\x1b[32m#\x1b[0m"


class Bars:
    """Two ranks that write progress bars, and a terminal."""

    def __init__(self) -> None:
        self._now = time.monotonic()
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.sink = Sink(self._slave, lambda: None)
        self._streams = [
            RankOutput(self.sink, TerminalPrefixer(f"[{rank}]:", False, lambda: 80)) for rank in range(2)
        ]

    def write(self, rank: int, data: bytes) -> str:
        """What the terminal shows after it, once the time has come to show bars."""
        self._streams[rank].feed(data)
        self._now += 10
        for stream in self._streams:
            stream.show_progress(self._now)
        _wait_idle(self.sink)
        try:
            return os.read(self._master, 1000).decode().replace("\r\x1b[K", "<")
        except BlockingIOError:
            return ""

    def close(self) -> None:
        for stream in self._streams:
            stream.end()
        _wait_idle(self.sink)  # or its thread writes to whatever gets the descriptor's number next
        self.sink.close()
        for descriptor in (self._master, self._slave):
            os.close(descriptor)


@pytest.fixture
def bars() -> Iterator[Bars]:
    bars = Bars()
    yield bars
    bars.close()


def test_a_terminal_shows_the_bar_of_one_rank_until_it_ends(bars: Bars) -> None:
    assert bars.write(0, b"\r10%") == "<[0]:10%"
    assert bars.write(1, b"\r10%") == ""
    assert bars.write(0, b"\r20%") == "<[0]:20%"
    assert bars.write(0, b"\r100%\n") == "<[0]:100%\r\n<[1]:10%"


def test_a_bar_that_stands_still_makes_way(bars: Bars, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bars.write(0, b"\r10%") == "<[0]:10%"
    monkeypatch.setattr(sink, "_BAR_SECONDS", 0.0)
    assert bars.write(1, b"\r10%") == "<<[1]:10%"


def _process(pid: int) -> Process:
    return Process("node", pid)


def test_tail_keeps_the_last_lines() -> None:
    tail = Tail()
    for number in range(5000):
        tail.feed(b"line %d\n" % number)
    tail.feed(b"\n  \nlast \xff\x1b[31m\n" + b"w" * 300)
    assert tail.lines(3, 20) == ["line 4999", "last �\\x1b[31m", "w" * 17 + "..."]
    assert tail.lines(1, 300) == ["w" * 300]


def test_report_is_short_and_names_the_rank() -> None:
    stdout, stderr = Tail(), Tail()
    stdout.feed(b"unrelated\n")
    stderr.feed(b"".join(b"error %d\n" % n for n in range(50)))
    cause = Cause(2, Exit(2, -11), None, 139)
    lines = (
        failure_report(Failure(cause, {2: _process(4711)}, [0, 5], [1]), stdout, stderr).decode().splitlines()
    )
    assert len(lines) == 12
    assert "rank 2 " in lines[0] and "4711" in lines[0] and "SIGSEGV" in lines[0] and "139" in lines[0]
    assert "rank 1 stopped (state T)" in lines[0]
    assert lines[1] == "horovodrun: after it failed: ranks 0, 5" and lines[-1] == "  error 49"
    assert lines[2] == "horovodrun: the last lines of rank 2 on stderr:"
    text = failure_report(
        Failure(Cause(0, Exit(0, 3), None, 3), {0: _process(1)}, [], []), stdout, Tail()
    ).decode()
    assert "unrelated" in text and "status 3" in text


def test_report_on_ranks_that_failed_alike_singles_none_out() -> None:
    stderr = Tail()
    stderr.feed(b"NameError: name 'lerning_rate' is not defined\n")
    processes = {rank: _process(rank) for rank in range(3)}
    failure = Failure(Cause(1, Exit(1, 2), None, 2), processes, [0, 2], [], is_alike=True)
    assert failure_report(failure, Tail(), stderr).decode().splitlines() == [
        "horovodrun: all 3 ranks failed with exit status 2 and the same error; the job's status is 2",
        "horovodrun: the last lines of rank 1 on stderr:",
        "  NameError: name 'lerning_rate' is not defined",
    ]


def test_report_tells_what_the_ranks_hold_for_the_cause_and_no_control_characters() -> None:
    stderr = Tail()
    stderr.feed(b"".join(b"error %d\n" % n for n in range(50)))
    reason = "rank 1 \x1b[31m died\n" * 20 + "long " * 1000
    verdict = Verdict(0, Kind.STALL, 1, reason)
    lines = failure_report(
        Failure(Cause(1, None, verdict, 1), {1: _process(5)}, [0], []), Tail(), stderr
    ).decode()
    assert len(lines.splitlines()) == 12 and "\x1b" not in lines and "error 49" in lines
    told = [line for line in lines.splitlines() if line.startswith("horovodrun: rank 1 \\x1b")]
    assert told[-1].endswith("died ...") and not any(line.endswith("...") for line in told[:-1])


def test_report_where_nobody_is_to_blame_is_the_reason_alone() -> None:
    stderr = Tail()
    stderr.feed(b"the reason, as this rank raised it\n")
    reason = "\n".join(f"operation {n}" for n in range(8))
    failure = Failure(
        Cause(None, None, Verdict(0, Kind.STALL, None, reason), 1),
        {0: _process(5), 1: _process(6)},
        [0, 1],
        [],
    )
    assert failure_report(failure, Tail(), stderr).decode().splitlines() == [
        "horovodrun: the ranks wait for each other; the job's status is 1",
        *(f"horovodrun: operation {n}" for n in range(8)),
        "horovodrun: ended with an error: ranks 0, 1",
    ]


def test_sink_ends_a_last_line_only_when_more_follows() -> None:
    read_end, write_end = os.pipe()
    writer = Sink(write_end, lambda: None)
    for data in (b"[0]:a\n", b"[0]:half", b"", b"[1]:b\n", b"[1]:last"):
        writer.put(data)
    _wait_idle(writer)
    writer.close()
    os.close(write_end)
    assert os.read(read_end, 1000) == b"[0]:a\n[0]:half\n[1]:b\n[1]:last"
    os.close(read_end)


def test_only_its_owner_goes_on_with_a_line() -> None:
    read_end, write_end = os.pipe()
    writer = Sink(write_end, lambda: None)
    one, other = object(), object()
    for data, owner in ((b"> ", one), (b"5\n", one), (b"> ", one), (b"x\n", other)):
        writer.put(data, owner)
    _wait_idle(writer)
    writer.close()
    os.close(write_end)
    assert os.read(read_end, 1000) == b"> 5\n> \nx\n"
    os.close(read_end)


def test_sink_never_blocks_and_says_when_there_is_room() -> None:
    read_end, write_end = os.pipe()
    room = threading.Event()
    writer = Sink(write_end, room.set)
    block = b"z" * (1 << 16)
    blocks = 0
    while not writer.is_full:
        writer.put(block)
        blocks += 1
    assert not room.is_set() and blocks >= sink._FULL_BYTES >> 16
    received = 0
    while received < blocks << 16:
        received += len(os.read(read_end, 1 << 20))
    assert room.wait(within(5))
    _wait_idle(writer)
    writer.close()
    os.close(write_end)
    os.close(read_end)


def test_sink_survives_a_reader_that_leaves() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = Sink(write_end, lambda: None)
    told: list[str] = []
    writer.on_loss = told.append
    for _ in range(100):
        writer.put(b"x" * 100000)
        _wait_idle(writer)
    assert not writer.is_full and told == []
    writer.close()
    os.close(write_end)


def test_sink_waits_for_a_pipe_that_does_not_block() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    writer = Sink(write_end, lambda: None)
    told: list[str] = []
    writer.on_loss = told.append
    writer.put(b"y" * (1 << 20))
    received = 0
    while received < 1 << 20:
        received += len(os.read(read_end, 1 << 16))
    _wait_idle(writer)
    writer.close()
    assert told == [] and not writer.has_lost
    os.close(write_end)
    os.close(read_end)


def test_sink_tells_once_why_what_comes_is_lost() -> None:
    told: list[str] = []
    with open("/dev/full", "wb") as full:
        writer = Sink(full.fileno(), lambda: None)
        writer.on_loss = told.append
        for _ in range(3):
            writer.put(b"x\n")
            _wait_idle(writer)
        writer.close()
    assert told == ["No space left on device"] and writer.has_lost


def _wait_idle(writer: Sink) -> None:
    deadline = time.monotonic() + within(5)
    while not writer.is_idle:
        assert time.monotonic() < deadline
        time.sleep(0.001)


_CRASH = b"""step 1
terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc
Fatal Python error: Aborted

Thread 0x00007f0 (most recent call first):
  File "stacks.py", line 67 in _answer

Current thread 0x00007f1 (most recent call first):
  File "inner.py", line 3 in deep
  File "train.py", line 9 in <module>

Extension modules: numpy (total: 1)
"""


def test_crash_shows_the_thread_that_it_hit() -> None:
    stderr = Tail()
    stderr.feed(_CRASH)
    lines = output.crash(stderr, 10, 200)
    assert lines == [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
        "Fatal Python error: Aborted",
        'File "inner.py", line 3 in deep',
        'File "train.py", line 9 in <module>',
    ]
    assert output.crash(stderr, 4, 20)[-1] == 'File "inner.py", ...'
    assert output.crash(Tail(), 10, 200) == []


def test_the_first_line_of_a_report_stands_out_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = b"horovodrun: rank 1 failed\nhorovodrun: after it failed: rank 0\n"
    shown = emphasized(report, True)
    assert re.sub(rb"\x1b\[[0-9;]*m", b"", shown) == report and shown.endswith(report.split(b"\n", 1)[1])
    assert shown.startswith(b"\x1b[1;31mhorovodrun: rank 1 failed\x1b[0m\n")
    assert emphasized(report, False) == report
    monkeypatch.setenv("NO_COLOR", "1")
    assert emphasized(report, True) == report
