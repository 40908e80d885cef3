"""The output streams of a rank: shown behind their prefix, and kept in files when asked."""

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from .file_writer import QueuedFile
from .files import open_file_in, open_folder, open_folder_in
from .journal import Journal, Record
from .nodes.node import STREAMS
from .output import Display, LinePrefixer, Tail
from .repeats import Repeats, ranges
from .sink import Sink

FILES_OF_A_RANK = 2
"""How many of them stay open while a rank runs."""

_NEVER = float("inf")
_PROGRESS_SECONDS = 0.2
_PROMPT_SECONDS = 0.05


class RankOutput:
    """One output stream of a rank, as it comes in. ``is_ended`` once it has.

    Args:
        sink: where its lines go.
        prefixer: what puts the prefix in front of them; None: they are not shown.
        file: where its bytes are kept, too.
        has_prompts: somebody may be asked something in a line that has not ended.
        record: makes events of it, too.
        repeats: keeps tracebacks back for a moment.
    """

    def __init__(
        self,
        sink: Sink,
        prefixer: LinePrefixer | None,
        file: QueuedFile | None = None,
        has_prompts: bool = False,
        record: Record | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.sink = sink
        self.tail = Tail()
        self.is_ended = False
        self._prefixer = prefixer
        self._has_prompts = has_prompts
        self._file = file
        self._record = record
        self._repeats = repeats
        self._unfinished_since = _NEVER
        self._is_shown = True

    def feed(self, data: bytes) -> None:
        """Takes the stream's next bytes."""
        self.tail.feed(data)
        if self._prefixer is not None and self._is_shown:
            self.pass_on(data if self._repeats is None else self._repeats.take(self, data))
        if self._record is not None and self._is_shown:
            self._record.feed(data)
        if self._file is not None:
            self._file.put(data)

    def pass_on(self, data: bytes) -> None:
        """Shows bytes of it."""
        if self._prefixer is None:
            return
        if self.is_ended:
            data = self._prefixer.feed(data) + self._prefixer.take_rest()
            self.sink.put(data, self)
        elif data:
            self._show(self._prefixer, data)

    def relabel(self, label: str) -> None:
        """What stands in front of its lines from now on."""
        if self._prefixer is not None:
            self._prefixer.relabel(label)

    def show(self, is_shown: bool) -> None:
        """Whether its lines are shown from now on, and are events."""
        if self._is_shown and not is_shown and self._prefixer is not None:
            self.sink.put(self._prefixer.take_rest(), self)
            self._unfinished_since = _NEVER
        self._is_shown = is_shown

    def keep_in(self, file: QueuedFile) -> None:
        """Where its bytes are kept from now on."""
        self._close_file()
        self._file = None if self.is_ended else file

    def hide(self) -> None:
        """From here on only the report and the file get what comes."""
        if self._repeats is not None:
            self._repeats.release()
        self._prefixer = self._record = None
        self._unfinished_since = _NEVER

    @property
    def has_room(self) -> bool:
        """Whether those who read it keep up."""
        if self._file is not None and self._file.is_full:
            return False
        return not (self.sink.is_full or (self._record is not None and self._record.sink.is_full))

    @property
    def kept(self) -> int:
        """Grows while files are written."""
        return 0 if self._file is None else self._file.written

    def end(self) -> None:
        """Shows the last line even if it has no newline. Idempotent."""
        if self.is_ended:
            return
        self.is_ended = True
        if self._prefixer is not None:
            self.sink.put(self._prefixer.take_rest(), self)
        self._unfinished_since = _NEVER
        if self._record is not None:
            self._record.end()
        self._close_file()
        if self._repeats is not None:
            self._repeats.ended()

    def _show(self, prefixer: LinePrefixer, data: bytes) -> None:
        self.sink.put(prefixer.feed(data), self)
        if not (prefixer.has_progress or (self._has_prompts and prefixer.has_rest)):
            self._unfinished_since = _NEVER
        elif self._has_prompts or self._unfinished_since == _NEVER:
            self._unfinished_since = time.monotonic()

    def progress_time(self) -> float:
        """When ``show_progress`` has something to show (infinity: every line has ended)."""
        recorded = _NEVER if self._record is None else self._record.progress_time()
        kept = _NEVER if self._repeats is None else self._repeats.next_time()
        return min(recorded, kept, self._show_time())

    def show_progress(self, now: float) -> None:
        """Shows a progress bar or a prompt, although its line has not ended.

        A terminal shows one bar at a time, that of one rank until it ends or stands still: two that took
        turns several times a second could not be read.
        """
        if self._record is not None:
            self._record.show_progress(now)
        if self._repeats is not None and now >= self._repeats.next_time():
            self._repeats.release()
        if now < self._show_time() or self._prefixer is None:
            return
        is_bar = self._prefixer.has_progress
        if is_bar and self.sink.shows_bar_beside(self):
            self._unfinished_since = now
            return
        self._unfinished_since = _NEVER
        take = self._prefixer.take_progress if is_bar else self._prefixer.take_rest
        self.sink.put(take(), self)

    def _show_time(self) -> float:
        return self._unfinished_since + (_PROMPT_SECONDS if self._has_prompts else _PROGRESS_SECONDS)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Outputs:
    """Makes the output streams of processes, as the user has asked to see them. ``repeats`` is for the stderr
    of all: equal tracebacks are shown once.
    """

    def __init__(self, sinks: Sequence[Sink], display: Display, journal: Journal) -> None:
        self.repeats = Repeats(self._show_repeated)
        self._sinks = dict(zip(STREAMS, sinks, strict=True))
        self._display = display
        self._journal = journal

    def new(self, number: int, stream: str, file: QueuedFile | None, is_shown: bool = True) -> RankOutput:
        """That of a rank, or of a worker of this number."""
        sink = self._sinks[stream]
        has_lines = is_shown and not self._journal.is_alone
        prefixer = self._display.prefixer(number, stream, sink.is_terminal) if has_lines else None
        record = self._journal.record(number, stream) if is_shown else None
        repeats = self.repeats if stream == "stderr" else None
        return RankOutput(sink, prefixer, file, number == self._display.stdin_rank, record, repeats)

    def _show_repeated(self, ranks: Collection[int], text: bytes) -> None:
        sink = self._sinks["stderr"]
        prefixer = self._display.prefixer(min(ranks), "stderr", sink.is_terminal, ranges(ranks))
        sink.put(prefixer.feed(text), prefixer)


def outputs_of(
    size: int,
    sinks: Sequence[Sink],
    display: Display,
    files: Sequence[Mapping[str, QueuedFile]],
    journal: Journal,
) -> dict[tuple[int, str], RankOutput]:
    """The two outputs of every rank, by rank and the name of the stream."""
    made, outputs = Outputs(sinks, display, journal), {}
    for rank in range(size):
        for name in STREAMS:
            outputs[rank, name] = made.new(rank, name, files[rank].get(name), display.shows(rank))
        made.repeats.name(outputs[rank, "stderr"], rank)
    return outputs


def open_files(folder: str, size: int) -> list[dict[str, BinaryIO]]:
    """DIR/rank.<zero padded rank>/stdout and stderr, emptied. Raises OSError; see ``files``."""
    opened: list[dict[str, BinaryIO]] = []
    with closing(open_folder(Path(folder))) as top:
        for rank in range(size):
            with closing(open_folder_in(top, folder_of(rank, size))) as own:
                opened.append({name: open_file_in(own, name) for name in STREAMS})
    return opened


def folder_of(rank: int, size: int) -> str:
    """That of one rank, in a job that begins with ``size``."""
    return f"rank.{rank:0{len(str(size - 1))}d}"


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Closes it afterwards."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
