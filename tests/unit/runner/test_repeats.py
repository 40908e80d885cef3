"""Tracebacks of several ranks that are alike are shown once."""

from types import SimpleNamespace

import pytest

from horovod.runner import repeats
from horovod.runner.elastic.worker_output import WorkerOutputs
from horovod.runner.output import Display, Tail
from horovod.runner.rank_output import outputs_of
from horovod.runner.repeats import ranges

TEXT = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: wrong\n'


class Sink:
    is_terminal = False
    is_full = False

    def __init__(self) -> None:
        self.data = b""

    def put(self, data: bytes, owner: object = None) -> None:
        self.data += data

    @property
    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


class Journal:
    is_alone = False

    def record(self, rank: int, name: str) -> None: ...


class Clock:
    now = 10.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    monkeypatch.setattr(repeats, "time", clock := Clock())
    return clock


def job(size: int, ranks=None):
    sinks = [Sink(), Sink()]
    outputs = outputs_of(size, sinks, Display(ranks=ranks), [{}] * size, Journal())
    return sinks[1], outputs, [outputs[rank, "stderr"] for rank in range(size)]


def end(outputs) -> None:
    for output in outputs.values():
        output.end()


@pytest.mark.parametrize("head", [b"", b"Exception in thread Thread-1 (run):\n"])
def test_equal_ones_are_shown_once_with_their_ranks(clock, head):
    sink, outputs, errors = job(4)
    text = head + TEXT
    for error in errors:
        error.feed(b"a line\n" + text)
    assert sink.lines == [f"[{rank}]<stderr>:a line" for rank in range(4)]
    end(outputs)
    assert sink.lines[4:] == [f"[0-3]<stderr>:{line}" for line in text.decode().splitlines()]


def test_each_different_one_is_shown_in_one_piece(clock):
    sink, outputs, errors = job(3)
    other = TEXT.replace(b"wrong", b"other")
    for error, text in zip(errors, (TEXT, other, TEXT), strict=True):
        error.feed(text[:50])
    for error, text in zip(errors, (TEXT, other, TEXT), strict=True):
        error.feed(text[50:])
    end(outputs)
    assert [line.partition("<")[0] for line in sink.lines] == ["[0,2]"] * 4 + ["[1]"] * 4
    assert sink.lines[-1] == "[1]<stderr>:ValueError: other"


def test_a_rank_alone_is_shown_after_a_moment(clock):
    sink, _outputs, errors = job(2)
    errors[1].feed(TEXT + b"no newline")
    due = errors[0].progress_time()
    assert sink.lines == [] and clock.now < due < clock.now + 2
    errors[0].show_progress(due)
    assert len(sink.lines) == 4 and all(line.startswith("[1]<stderr>:") for line in sink.lines)
    errors[1].feed(b" yet\nmore\n")
    assert sink.lines[4:] == ["[1]<stderr>:no newline yet", "[1]<stderr>:more"]
    assert errors[0].progress_time() == float("inf")


def test_a_rank_that_has_ended_meanwhile_loses_nothing(clock):
    sink, _outputs, errors = job(2)
    errors[0].feed(TEXT + b"no newline")
    errors[0].end()
    assert sink.lines == []
    errors[1].show_progress(errors[1].progress_time())
    assert sink.lines[-2:] == ["[0]<stderr>:ValueError: wrong", "[0]<stderr>:no newline"]


def test_what_is_hidden_at_the_end_is_shown_before(clock):
    sink, _outputs, errors = job(2)
    errors[0].feed(TEXT)
    errors[0].hide()
    assert len(sink.lines) == 4


def test_only_ranks_that_are_shown_count(clock):
    sink, outputs, errors = job(3, ranks=[1])
    for error in errors:
        error.feed(TEXT)
    end(outputs)
    assert [line.partition("<")[0] for line in sink.lines] == ["[1]"] * 4


def test_processes_of_an_elastic_job_go_by_their_ranks(clock, tmp_path):
    sink = Sink()
    outputs = WorkerOutputs([sink, sink], Display(), Journal(), None, SimpleNamespace(of_ranks=[]))
    workers = [outputs.new(worker, "stderr") for worker in range(5)]
    for worker, rank in ((0, 1), (1, 0), (2, 2), (4, 2)):
        outputs.name(workers[worker], worker, "stderr", rank)
    for worker in workers:
        worker.feed(TEXT)
        worker.end()
    assert [line.partition("<")[0] for line in sink.lines] == ["[0-2]"] * 4 + ["[w3]"] * 4


def test_a_traceback_within_a_line_is_no_traceback(clock):
    sink, _outputs, errors = job(2)
    errors[0].feed(b"log: " + TEXT)
    assert len(sink.lines) == 4


@pytest.mark.parametrize(
    ("ranks", "text"), [([3], "3"), ([0, 1, 2, 3], "0-3"), ([7, 0, 1, 5, 6], "0-1,5-7"), ([0, 2], "0,2")]
)
def test_numbers_as_people_write_them(ranks, text):
    assert ranges(ranks) == text


def tail(text: str) -> Tail:
    found = Tail()
    found.feed(text.encode())
    return found


def call(name: str) -> str:
    return f'  File "{name}", line 7, in f\n    code of {name}\n    ^^^^\n'


def test_the_last_lines_are_the_call_of_the_program_and_the_message():
    library = "".join(call(f"/venv/lib/python3.11/site-packages/torch/{n}.py") for n in range(9))
    head = "Traceback (most recent call last):\n"
    text = f"before\n{head}{call('project/train.py')}{library}ValueError: wrong\n  a second line\n"
    assert tail(text).lines(5, 200) == [
        '  File "project/train.py", line 7, in f',
        "    code of project/train.py",
        "    ^^^^",
        "ValueError: wrong",
        "  a second line",
    ]
    assert tail(head + library + "ValueError: wrong\n").lines(2, 200)[0] == "    ^^^^"
    assert tail(f"{head}{library}{call('train.py')}KeyError: 1\n").lines(99, 99)[-5:-1] == [
        "    ^^^^",
        *call("train.py").splitlines(),
    ]
