"""How the job of an MPI launcher has ended, from the launcher's words and from those of its ranks."""

import re
from collections.abc import Sequence

import pytest

from horovod.bootstrap.store.verdicts import Kind
from horovod.runner.ending import Exit
from horovod.runner.mpi import relay
from horovod.runner.mpi.outcome import Blame, Outcome, blame, outcome
from horovod.runner.sink import Sink

_EXITED = "  Process name: [[9569,1],2]\n  Exit code:    3\n"
_KILLED = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."
_HYDRA = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"
_HYDRA_OF_TWO = (
    "=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)"
)
_WARNS = "warning: rank 1 on node (node 1) (pid 71) has not responded for 3.0 s"
_SILENT = (
    "'x' was not completed: rank 1 on node (node 1) (pid 71) has not responded for 6.0 s (stopped). "
    "Look at what that process does (for example with py-spy dump), then restart the job."
)


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (0, _EXITED, Outcome(None, 0)),
        (3, _EXITED, Outcome(2, 3)),
        (137, _KILLED, Outcome(1, -9)),
        (9, _HYDRA, Outcome(None, -9)),
        (15, _HYDRA_OF_TWO, Outcome(None, -9)),  # SIGKILL, and then a SIGABRT: 9 | 6
        (5, "no word", Outcome(None, 5)),
        (3, _EXITED.replace("2]", "9]"), Outcome(None, 3)),
    ],
)
def test_who_failed_as_the_launcher_says(code: int, words: str, expected: Outcome) -> None:
    assert outcome(code, words, 4) == expected


def test_whom_the_ranks_gave_up_on_as_they_say() -> None:
    assert blame(["", "rank 1 has not responded, as somebody printed"], 4) is None
    assert blame([_SILENT.replace("rank 1", "rank 7")], 4) is None
    found = blame([_SILENT.replace("rank 1", "rank 2"), _WARNS + "\n" + _SILENT, _SILENT], 4)
    assert found is not None and (found.kind, found.rank) == (Kind.SILENT, 1)
    assert found.reason.startswith("rank 1 on node (node 1) (pid 71) has not responded for 6.0 s (stopped)")
    gone = "rank 2 (pid 5) has left the job (its program ended), but rank 0 waits for 'x'."
    assert blame([f"'x' was not completed: {gone}\nTraceback"], 4) == Blame(Kind.LEFT, 2, gone)
    dead = "rank 3 (pid 5) died: its connection ended without a goodbye."
    assert blame([f"error: {dead}", _WARNS, f"error: {dead}"], 4) == Blame(Kind.DIED, 3, dead)


class Heard:
    """Takes the place of the supervisor."""

    def __init__(self) -> None:
        self.exits: list[Exit] = []

    def output(self, rank: int, stream: str, data: bytes) -> None:
        pass

    def ended(self, exits: Sequence[Exit]) -> None:
        self.exits += exits


@pytest.mark.parametrize(("word", "expected"), [(_SILENT, Kind.SILENT), (_WARNS, Kind.FAULT)])
def test_a_silent_rank_is_blamed_where_the_launcher_killed_the_rest(word: str, expected: Kind) -> None:
    """MPICH does, and tells only that; a warning may have nothing to do with it."""
    heard, testimony, sinks = Heard(), relay.Testimony(), [Sink(1, lambda: None), Sink(2, lambda: None)]
    told = relay.Relay(heard, sinks, re.compile(rb"<(\d)>"), "MPICH", 3, testimony)  # type: ignore[arg-type]
    told.output(0, "stderr", f"<2>{word}\n<0>{word}\n".encode())
    told.output(0, "stdout", _HYDRA.encode())
    told.ended([Exit(0, 9)])
    assert heard.exits[0].code == (1 if expected == Kind.SILENT else -9)
    assert [said.kind for said in testimony.verdicts((), 0.0)] == [expected]
    for sink in sinks:
        sink.close()


@pytest.mark.parametrize("code", [0, 3, 137])
def test_a_silent_rank_is_blamed_where_another_raised_for_it(code: int) -> None:
    heard, testimony, sinks = Heard(), relay.Testimony(), [Sink(1, lambda: None), Sink(2, lambda: None)]
    told = relay.Relay(heard, sinks, re.compile(rb"<(\d)>"), "an mpirun", 3, testimony)  # type: ignore[arg-type]
    told.output(0, "stderr", f"<2>{_SILENT}\n<0>{_SILENT}\n".encode())
    told.output(0, "stdout", (_KILLED if code == 137 else _EXITED if code else "").encode())
    told.ended([Exit(0, code)])
    assert [exit.rank for exit in heard.exits] == {0: [0, 1, 2], 3: [2, 0, 1], 137: [1, 0, 2]}[code]
    assert [exit.untold for exit in heard.exits[1:]] == (
        ["an mpirun does not tell"] * 2 if code else [""] * 2
    )
    verdicts = [(said.observer, said.kind, said.culprit) for said in testimony.verdicts((), 0.0)]
    assert verdicts == ([(2, Kind.SILENT, 1)] if code == 3 else [])
    for sink in sinks:
        sink.close()


@pytest.mark.parametrize(
    ("code", "words", "text", "expected"),
    [
        # Ranks that raised ended before the one for which they did, or after it.
        (3, _EXITED, "rank 1 (pid 5) has left the job (its program ended)", (2, Kind.LEFT, 1)),
        (3, _EXITED, "rank 2 (pid 5) has left the job (its program ended)", None),
        (3, _EXITED, "rank 1 (pid 5) died: its connection ended", (2, Kind.DIED, 1)),
        (137, _KILLED, "rank 2 (pid 5) died: its connection ended", None),
        (9, _HYDRA, "rank 1 (pid 5) died: its connection ended", (0, Kind.DIED, 1)),
        (9, _HYDRA, "rank 1 (pid 5) has left the job (its program ended)", (0, Kind.FAULT, None)),
    ],
)
def test_who_is_blamed_beside_what_the_launcher_says(
    code: int, words: str, text: str, expected: tuple[int, Kind, int | None] | None
) -> None:
    heard, testimony, sinks = Heard(), relay.Testimony(), [Sink(1, lambda: None), Sink(2, lambda: None)]
    told = relay.Relay(heard, sinks, re.compile(rb"<(\d)>"), "an mpirun", 3, testimony)  # type: ignore[arg-type]
    told.output(0, "stderr", f"<0>'x' was not completed: {text}\n".encode())
    told.output(0, "stdout", words.encode())
    told.ended([Exit(0, code)])
    verdicts = [(said.observer, said.kind, said.culprit) for said in testimony.verdicts((), 0.0)]
    assert verdicts == ([] if expected is None else [expected])
    for sink in sinks:
        sink.close()
