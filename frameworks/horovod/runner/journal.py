"""What happens in a job, for programs: one JSON object in each line (--json, --events FILE)."""

import base64
import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from horovod.version import __version__

from .arbitration import Cause
from .ending import Exit, signal_name
from .output import LinePrefixer
from .sink import Sink

if TYPE_CHECKING:
    from .progress.view import View

_NEVER = float("inf")
_PROGRESS_SECONDS = 0.2


class Journal:
    """Writes events to a sink; without one, it does nothing.

    ``is_alone``: nothing but events is shown, not even the lines of the ranks (--json).
    """

    def __init__(self, sink: Sink | None = None, is_alone: bool = False) -> None:
        self.sink = sink
        self.is_alone = is_alone
        self.view: View | None = None  # is told of the ranks, too
        self.has_ended = False
        self._begin = time.monotonic()

    def start(self, command: Iterable[str], hosts: Iterable[str]) -> None:
        """The job begins; ``hosts`` are those of its ranks."""
        names, words = list(hosts), list(command)
        if self.view is not None:
            self.view.start(words)
        self._write("start", version=__version__, command=words, ranks=len(names), hosts=names)

    def restart(self, number: int) -> None:
        """All ranks are started again, for the time of this number."""
        if self.view is not None:
            self.view.forget_ranks()
        self._write("restart", restart=number)

    def started(self, rank: int, host: str, pid: int) -> None:
        """A rank runs."""
        if self.view is not None:
            self.view.started(rank, host, pid)
        self._write("rank", rank=rank, host=host, pid=pid)

    def generation(self, number: int, ranks: Iterable[tuple[int, int, str]]) -> None:
        """An elastic job has these ranks from now on: rank, number of its process, host."""
        places = list(ranks)
        if self.view is not None:
            self.view.generation(number, [(rank, worker) for rank, worker, _ in places])
        named = [{"rank": rank, "worker": worker, "host": host} for rank, worker, host in places]
        self._write("generation", generation=number, ranks=named)

    def record(self, rank: int, stream: str) -> "Record | None":
        """Takes the output of one stream of a rank; None: nobody wants it."""
        return None if self.sink is None else Record(self.sink, rank, stream)

    def exits(self, exits: Iterable[Exit], hosts: Sequence[str]) -> None:
        """How ranks ended."""
        exits = list(exits)
        if self.view is not None:
            self.view.exits(exits)
        for each in exits:
            why = each.lost or each.untold
            end = {**_end_of(None), "lost": why} if why else _end_of(each.code)
            self._write("exit", rank=each.rank, host=hosts[each.rank], **end)

    def signal(self, number: int) -> None:
        """The launcher got a signal that ends the job."""
        self._write("signal", signal=signal_name(number))

    def timeout(self) -> None:
        """The time of the job is over."""
        self._write("timeout")

    def message(self, data: bytes) -> bool:
        """What the launcher says itself. Returns whether nobody else is to see it."""
        if self.sink is not None:
            for line in data.splitlines():
                self._write("message", **text_of(line.removeprefix(b"horovodrun: ")))
        return self.is_alone

    def failure(self, cause: Cause, host: str | None, pid: int | None, report: bytes) -> None:
        """Why the job failed, as far as anybody knows, and what people are told."""
        verdict = cause.verdict
        self._write(
            "failure",
            rank=cause.rank,
            host=host,
            pid=pid,
            cause="exit" if verdict is None else verdict.kind.name.lower(),
            **_end_of(None if cause.exit is None else cause.exit.code),
            killer=None if cause.exit is None else cause.exit.killer,
            reason=None if verdict is None else verdict.reason,
            report=report.decode(errors="replace").splitlines(),
        )

    def end(self, status: int) -> None:
        """The job is over."""
        self.has_ended = True
        if self.view is not None:
            self.view.end(status)
        self._write("end", status=status, seconds=round(time.monotonic() - self._begin, 3))

    def flush(self, seconds: float) -> None:
        """Waits until all is written, at most so long."""
        if self.sink is not None:
            self.sink.flush(seconds)

    def _write(self, event: str, **fields: object) -> None:
        if self.sink is not None:
            self.sink.put(encoded(event, **fields) + b"\n", self)


class Record:
    """One output stream of a rank, as events: a line each, and what a progress bar has come to."""

    def __init__(self, sink: Sink, rank: int, stream: str) -> None:
        self.sink = sink
        self._lines = _Lines(rank, stream)
        self._unfinished_since = _NEVER

    def feed(self, data: bytes) -> None:
        """Takes the stream's next bytes."""
        self.sink.put(self._lines.feed(data), self)
        if not self._lines.has_progress:
            self._unfinished_since = _NEVER
        elif self._unfinished_since == _NEVER:
            self._unfinished_since = time.monotonic()

    def end(self) -> None:
        """Takes its end, which ends the last line."""
        self._unfinished_since = _NEVER
        if rest := self._lines.take_rest():
            self.sink.put(rest + b"\n", self)

    def progress_time(self) -> float:
        """When ``show_progress`` has something to tell (infinity: every line has ended)."""
        return self._unfinished_since + _PROGRESS_SECONDS

    def show_progress(self, now: float) -> None:
        """Tells what a progress bar shows."""
        if now >= self.progress_time():
            self._unfinished_since = _NEVER
            self.sink.put(self._lines.take_progress(), self)


class _Lines(LinePrefixer):
    """Makes an event of each line."""

    def __init__(self, rank: int, stream: str) -> None:
        super().__init__("")
        self._rank = rank
        self._stream = stream

    def take_progress(self) -> bytes:
        """The bar up to its last carriage return."""
        end = self._rest.rfind(b"\r") + 1
        progress, self._rest = bytes(self._rest[:end]), self._rest[end:]
        return self._event(progress, newline=False) + b"\n" if progress else b""

    def take_rest(self) -> bytes:
        """The last line, when the stream ended without a newline, or a line that is too long."""
        rest, self._rest = bytes(self._rest), bytearray()
        return self._event(rest, newline=False) if rest else b""

    def _shown(self, prefix: bytes, line: bytes) -> bytes:
        return self._event(line, newline=True)

    def _event(self, line: bytes, newline: bool) -> bytes:
        return encoded("output", rank=self._rank, stream=self._stream, **text_of(line), newline=newline)


def encoded(event: str, **fields: object) -> bytes:
    """One event, without a newline. All is ASCII: nothing in it steers a terminal or breaks a line."""
    return json.dumps({"event": event, "time": round(time.time(), 6), **fields}).encode("ascii")


def text_of(data: bytes) -> dict[str, str]:
    """Bytes as text; those that are no UTF-8 are replaced in it, and are whole beside it."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"text": data.decode(errors="replace"), "base64": base64.b64encode(data).decode("ascii")}


def _end_of(code: int | None) -> dict[str, object]:
    """An exit status or a signal; neither, where somebody has not ended."""
    if code is None or code >= 0:
        return {"exit_status": code, "signal": None}
    return {"exit_status": None, "signal": signal_name(-code)}
