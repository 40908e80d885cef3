"""The two output streams of a rank: read, shown behind their prefix, and kept in files when asked."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from horovod.bootstrap.text import escaped

from .files import open_file_in, open_folder, open_folder_in
from .output import LinePrefixer, Tail
from .sink import Sink

FILES_OF_A_RANK = 2
"""How many of them stay open while a rank runs."""

_READ_BYTES = 1 << 16
_NEVER = float("inf")
_PROGRESS_SECONDS = 0.2
_PROMPT_SECONDS = 0.05


class RankStream:
    """The launcher's end of one pipe. ``descriptor`` is -1 once the stream has ended.

    Args:
        descriptor: the end to read from.
        sink: where its lines go.
        prefixer: what puts the prefix in front of them; None: they are not shown.
        file: where its bytes are kept, too.
        has_prompts: somebody may be asked something in a line that has not ended.
    """

    def __init__(
        self,
        descriptor: int,
        sink: Sink,
        prefixer: LinePrefixer | None,
        file: BinaryIO | None = None,
        has_prompts: bool = False,
    ) -> None:
        self.descriptor = descriptor
        self.sink = sink
        self.tail = Tail()
        self._prefixer = prefixer
        self._has_prompts = has_prompts
        self._file = file
        self._unfinished_since = _NEVER

    def read(self) -> bool:
        """Takes what is there, once the descriptor is readable; False at the end of the stream."""
        data = os.read(self.descriptor, _READ_BYTES)
        if not data:
            return False
        self.tail.feed(data)
        if self._prefixer is not None:
            self._show(self._prefixer, data)
        if self._file is not None:
            self._keep(self._file, data)
        return True

    def _show(self, prefixer: LinePrefixer, data: bytes) -> None:
        self.sink.put(prefixer.feed(data), self)
        if not (prefixer.has_progress or (self._has_prompts and prefixer.has_rest)):
            self._unfinished_since = _NEVER
        elif self._has_prompts or self._unfinished_since == _NEVER:
            self._unfinished_since = time.monotonic()

    def discard(self) -> None:
        """Ends the stream without showing what is still in it: only the report and the file get that."""
        if self.descriptor < 0:
            return
        os.set_blocking(self.descriptor, False)
        try:
            while data := os.read(self.descriptor, _READ_BYTES):
                self.tail.feed(data)
                if self._file is not None:
                    self._keep(self._file, data)
        except BlockingIOError:
            pass
        self.close()

    def close(self) -> None:
        """Shows the last line even if it has no newline, and ends the stream."""
        if self.descriptor >= 0:
            if self._prefixer is not None:
                self.sink.put(self._prefixer.take_rest(), self)
            self._unfinished_since = _NEVER
            os.close(self.descriptor)
            self.descriptor = -1
            if self._file is not None:
                self._file.close()

    def progress_time(self) -> float:
        """When ``show_progress`` has something to show (infinity: every line has ended)."""
        return self._unfinished_since + (_PROMPT_SECONDS if self._has_prompts else _PROGRESS_SECONDS)

    def show_progress(self, now: float) -> None:
        """Shows a progress bar or a prompt, although its line has not ended.

        A terminal shows one bar at a time, that of one rank until it ends or stands still: two that took
        turns several times a second could not be read.
        """
        if now < self.progress_time() or self._prefixer is None:
            return
        is_bar = self._prefixer.has_progress
        if is_bar and self.sink.shows_bar_beside(self):
            self._unfinished_since = now
            return
        self._unfinished_since = _NEVER
        take = self._prefixer.take_progress if is_bar else self._prefixer.take_rest
        self.sink.put(take(), self)

    def _keep(self, file: BinaryIO, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:  # a disk takes part of it before it is full
                view = view[file.write(view) :]
        except OSError as error:
            self._file = None
            why = f"{escaped(file.name)}: {error.strerror}"
            self.sink.put(f"horovodrun: warning: {why}; no more is kept there\n".encode())


def open_files(folder: str, size: int) -> list[dict[str, BinaryIO]]:
    """DIR/rank.<zero padded rank>/stdout and stderr, emptied. Raises OSError; see ``files``."""
    width = len(str(size - 1))
    opened: list[dict[str, BinaryIO]] = []
    with _closing(open_folder(Path(folder))) as top:
        for rank in range(size):
            with _closing(open_folder_in(top, f"rank.{rank:0{width}d}")) as own:
                opened.append({name: open_file_in(own, name) for name in ("stdout", "stderr")})
    return opened


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
