"""Events of a job for programs: each line is one JSON object, whatever bytes the ranks write."""

import base64
import json
import os
import signal
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.runner import journal
from horovod.runner.arbitration import Cause
from horovod.runner.ending import Exit
from horovod.runner.journal import Journal
from horovod.runner.output import MAX_LINE
from horovod.runner.sink import Sink


class Page:
    """A journal that writes into a pipe."""

    def __init__(self, is_alone: bool = False) -> None:
        self._read_end, write_end = os.pipe()
        self.sink = Sink(write_end, lambda: None)
        self.journal = Journal(self.sink, is_alone)
        self._write_end = write_end

    def events(self) -> list[dict[str, Any]]:
        """What was written, without the times."""
        self.sink.close()
        while not self.sink.is_idle:
            time.sleep(0.01)
        os.close(self._write_end)
        with open(self._read_end, "rb") as file:
            text = file.read()
        assert text.isascii() and (not text or text.endswith(b"\n"))
        found = [json.loads(line) for line in text.splitlines()]
        assert all(abs(each.pop("time") - time.time()) < 3600 for each in found)
        return found


def bytes_of(event: dict[str, Any]) -> bytes:
    return base64.b64decode(event["base64"]) if "base64" in event else event["text"].encode()


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_output_keeps_every_byte(pieces: list[bytes]) -> None:
    page = Page()
    record = page.journal.record(3, "stderr")
    assert record is not None
    for piece in pieces:
        record.feed(piece)
    record.end()
    events = page.events()
    assert {(each["event"], each["rank"], each["stream"]) for each in events} <= {("output", 3, "stderr")}
    assert b"".join(bytes_of(each) + b"\n" * each["newline"] for each in events) == b"".join(pieces)


def test_text_is_never_broken_utf_8() -> None:
    assert journal.text_of("né".encode()) == {"text": "né"}
    assert journal.text_of(b"n\xff") == {"text": "n\ufffd", "base64": "bv8="}
    assert journal.text_of(b"\xed\xa0\x80")["text"].encode()  # half of a surrogate pair


def test_a_progress_bar_is_told_of_as_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    record = page.journal.record(0, "stdout")
    assert record is not None and record.progress_time() == float("inf")
    record.feed(b"10%\r20%\r30")
    record.show_progress(record.progress_time() - 0.01)
    record.show_progress(record.progress_time())
    assert record.progress_time() == float("inf")
    record.feed(b"%\n")
    record.end()
    shown = [(each["text"], each["newline"]) for each in page.events()]
    assert shown == [("10%\r20%\r", False), ("30%", True)]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    page = Page()
    record = page.journal.record(0, "stdout")
    assert record is not None
    for _ in range(2):
        record.feed(b"x" * (MAX_LINE // 2 + 1))
    record.feed(b"y\n")
    os.set_blocking(page._read_end, True)
    drained = b""
    while drained.count(b"\n") < 2:
        drained += os.read(page._read_end, 1 << 20)
    first, second = (json.loads(line) for line in drained.splitlines())
    assert len(first["text"]) == MAX_LINE + 2 and not first["newline"] and second["text"] == "y"
    assert page.events() == []


def test_a_whole_job() -> None:
    page = Page()
    own = page.journal
    own.start(["prog", "a b"], ["one", "two"])
    own.started(1, "two", 17)
    own.restart(1)
    own.signal(signal.SIGINT)
    own.timeout()
    assert own.message(b"horovodrun: warning: odd\nline\n") is False
    own.exits([Exit(0, 0), Exit(1, -9), Exit(1, 1, lost="its host is gone")], ["one", "two"])
    own.exits([Exit(0, 255, untold="MPICH does not tell")], ["one", "two"])
    own.end(137)
    start, *others, end = page.events()
    assert (start.pop("version"), start) == (
        journal.__version__,
        {"event": "start", "command": ["prog", "a b"], "ranks": 2, "hosts": ["one", "two"]},
    )
    assert others == [
        {"event": "rank", "rank": 1, "host": "two", "pid": 17},
        {"event": "restart", "restart": 1},
        {"event": "signal", "signal": "SIGINT"},
        {"event": "timeout"},
        {"event": "message", "text": "warning: odd"},
        {"event": "message", "text": "line"},
        {"event": "exit", "rank": 0, "host": "one", "exit_status": 0, "signal": None},
        {"event": "exit", "rank": 1, "host": "two", "exit_status": None, "signal": "SIGKILL"},
        {
            "event": "exit",
            "rank": 1,
            "host": "two",
            "exit_status": None,
            "signal": None,
            "lost": "its host is gone",
        },
        {
            "event": "exit",
            "rank": 0,
            "host": "one",
            "exit_status": None,
            "signal": None,
            "lost": "MPICH does not tell",
        },
    ]
    assert (end["event"], end["status"]) == ("end", 137) and end["seconds"] >= 0


def test_failures_name_their_cause() -> None:
    page = Page()
    killed = Cause(1, Exit(1, -9, killer="the kernel"), None, 137)
    page.journal.failure(killed, "two", 17, b"horovodrun: rank 1 \xff\n  x\n")
    stalled = Cause(None, None, Verdict(0, Kind.STALL, None, "they wait"), 1)
    page.journal.failure(stalled, None, None, b"")
    first, second = page.events()
    assert first == {
        "event": "failure",
        "rank": 1,
        "host": "two",
        "pid": 17,
        "cause": "exit",
        "exit_status": None,
        "signal": "SIGKILL",
        "killer": "the kernel",
        "reason": None,
        "report": ["horovodrun: rank 1 \ufffd", "  x"],
    }
    assert (second["rank"], second["cause"], second["reason"]) == (None, "stall", "they wait")


def test_messages_are_events_and_are_shown_too_unless_events_are_all() -> None:
    for is_alone in (False, True):
        page, (read_end, write_end) = Page(is_alone), os.pipe()
        shown = Sink(write_end, lambda: None)
        shown.takes_message = page.journal.message
        shown.put(b"horovodrun: hello\n")
        shown.put(b"a line\n", object())  # of a rank
        shown.close()
        assert os.read(read_end, 100) == (b"a line\n" if is_alone else b"horovodrun: hello\na line\n")
        assert page.events() == [{"event": "message", "text": "hello"}]
        os.close(read_end)
        os.close(write_end)


def test_without_a_sink_nothing_happens() -> None:
    own = Journal()
    own.start([], [])
    own.end(0)
    assert own.record(0, "stdout") is None and own.message(b"x") is False
