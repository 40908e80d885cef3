"""Text from outside leaves the process escaped: names that steer a terminal, forge lines or never end."""

import json
import re
import threading
import unicodedata
from pathlib import Path

import pytest
import torch
from launch import Job
from standard_error import standard_error_of

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError

HOSTILE = "w\x1b]0;owned\a\x1b[2J\r\nhorovodrun: all is well\0\x7f\x9b\u202etxt.exe\u2066\u2028end"
ESCAPED = r"w\x1b]0;owned\x07\x1b[2J\r\nhorovodrun: all is well\x00\x7f\x9b\u202etxt.exe\u2066\u2028end"
LONG = "layer" + "x" * 10_000 + "\x1bweight"
WIRES = ["shm", "tcp"]


QUICK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "1.5"}


def hidden(text: str) -> list[str]:
    """The characters of ``text`` that must not reach a terminal."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"}]


def error_of(call, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def _ones(rows: int = 2) -> torch.Tensor:
    return torch.ones(rows)


def ranks_call_with_hostile_names() -> dict[str, str]:
    """The errors of one operation, by what is wrong."""
    hvd.init()
    rank, texts = hvd.rank(), {}
    assert hvd.allreduce(_ones(), op=hvd.Sum, name=HOSTILE).tolist() == [2.0, 2.0]
    texts["shape"] = error_of(lambda: hvd.allreduce(_ones(2 + rank), name=HOSTILE), TensorMismatchError)
    texts["group"] = error_of(
        lambda: hvd.grouped_allreduce([_ones()] * (1 + rank), name=HOSTILE), TensorMismatchError
    )
    kinds = [lambda: hvd.allreduce(_ones(), name=HOSTILE), lambda: hvd.broadcast(_ones(), 0, name=HOSTILE)]
    texts["operation"] = error_of(kinds[rank], TensorMismatchError)
    texts["own mistake"] = error_of(
        lambda: hvd.allreduce(_ones(), name=HOSTILE, prescale_factor=float("nan")), ValueError
    )
    texts["long name"] = error_of(lambda: hvd.allreduce(_ones(2 + rank), name=LONG), TensorMismatchError)
    if rank == 0:
        handle = hvd.allreduce_async(_ones(), name=HOSTILE)
        texts["duplicate"] = error_of(lambda: hvd.allreduce_async(_ones(), name=HOSTILE), ValueError)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(_ones(), name=HOSTILE)
    hvd.synchronize(handle)
    return texts


@pytest.mark.parametrize("wire", WIRES)
def test_errors_escape_names(run_ranks, wire: str) -> None:
    first, second = run_ranks(2, ranks_call_with_hostile_names, env={"HOROVOD_TRANSPORT": wire})
    for kind, text in (first | second).items():
        assert hidden(text) == [], (kind, text)
        assert "\n" not in text, (kind, text)
        assert len(text) < 1000, (kind, len(text))
        if kind != "long name":
            assert ESCAPED in text, (kind, text)
    begin, end = re.search(
        r"'(layerx+)\.\.\.\(10012 bytes, sha256 \w+\)\.\.\.(x+\\x1bweight)'", first["long name"]
    ).groups()
    assert abs(len(begin) - len(end)) <= 1
    assert first["shape"] == second["shape"]
    assert first["long name"] == second["long name"]


def ranks_reduce_under_long_names() -> list[list[float]]:
    """Names that differ in the middle only."""
    hvd.init()
    names = ["a" * 5_000 + middle + "z" * 5_000 for middle in "xy"]
    if hvd.rank() == 1:
        names.reverse()
    handles = {name: hvd.allreduce_async(_ones() * ord(name[5_000]), name=name, op=hvd.Sum) for name in names}
    return [hvd.synchronize(handles[name]).tolist() for name in sorted(names)]


@pytest.mark.parametrize("wire", WIRES)
def test_names_of_ten_kilobytes_work(run_ranks, wire: str) -> None:
    results = run_ranks(2, ranks_reduce_under_long_names, env={"HOROVOD_TRANSPORT": wire})
    assert results == [[[240.0, 240.0], [242.0, 242.0]]] * 2


def ranks_deadlock_under_hostile_names() -> list[str]:
    hvd.init()
    thread = threading.current_thread()
    thread.name = HOSTILE
    errors: list[str] = []

    def wait() -> None:
        try:
            hvd.allreduce(_ones(), name=HOSTILE if hvd.rank() == 0 else LONG)
        except HorovodInternalError as error:
            errors.append(str(error))

    return [standard_error_of(wait), *errors]


@pytest.mark.parametrize("wire", WIRES)
def test_stall_reports_and_stacks_escape_names(run_ranks, wire: str) -> None:
    results = run_ranks(2, ranks_deadlock_under_hostile_names, env={**QUICK, "HOROVOD_TRANSPORT": wire})
    for shown, error in results:
        assert hidden(shown) == [], shown
        assert hidden(error) == [], error
        # Lines are ours alone.
        assert not re.search(r"^horovodrun: all is well", shown + "\n" + error, re.MULTILINE)
        assert ESCAPED in error and "(10012 bytes, sha256 " in error, error
        assert "Python stacks of rank" in shown and ESCAPED in shown, shown


def test_the_output_of_a_failed_job_holds_nothing_hidden() -> None:
    name = HOSTILE.replace("\0", "")  # no argument can hold one
    job = Job(2, "hostile_names.py", name, env=QUICK)
    result = job.finish(120)
    assert result.returncode == 1
    assert hidden(result.output) == [], ascii(result.output)
    assert not re.search(r"^(\[\d\]<\w+>:)?horovodrun: all is well", result.output, re.MULTILINE)
    report = result.output.partition("horovodrun: ")[2]
    assert r"w\x1b]0;owned\x07" in report, result.output


def rank_lets_a_hostile_name_wait() -> str:
    hvd.init()
    if hvd.rank() == 1:
        hvd.shutdown()
        return ""
    return error_of(lambda: hvd.allreduce(_ones(), name=HOSTILE), HorovodInternalError)


@pytest.mark.parametrize("wire", WIRES)
def test_the_cause_that_a_watcher_tells_is_escaped(run_ranks, wire: str) -> None:
    error, _ = run_ranks(2, rank_lets_a_hostile_name_wait, env={"HOROVOD_TRANSPORT": wire})
    assert hidden(error) == [] and "\n" not in error
    assert error.count(ESCAPED) == 2, error  # of the operation, and of the cause


def ranks_write_a_timeline() -> None:
    hvd.init()
    for name in (HOSTILE, LONG):
        hvd.allreduce(_ones(), name=name)


@pytest.mark.parametrize("wire", WIRES)
def test_timelines_hold_hostile_names_as_json(run_ranks, tmp_path: Path, wire: str) -> None:
    file = tmp_path / "timeline.json"
    run_ranks(2, ranks_write_a_timeline, env={"HOROVOD_TIMELINE": str(file), "HOROVOD_TRANSPORT": wire})
    data = file.read_bytes()
    assert data.isascii() and hidden(data.decode()) == []
    names = {e["args"]["name"] for e in json.loads(data) if e.get("name") == "thread_name"}
    assert any(HOSTILE in name for name in names), names
