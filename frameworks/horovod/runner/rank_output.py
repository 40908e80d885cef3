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
_PROGRESS_SECONDS = 0.5


class RankStream:
    """The launcher's end of one pipe. ``descriptor`` is -1 once the stream has ended."""

    def __init__(
        self, descriptor: int, label: str, sink: Sink, file: BinaryIO | None, timestamps: bool
    ) -> None:
        self.descriptor = descriptor
        self.sink = sink
        self.tail = Tail()
        self._prefixer = LinePrefixer(label, timestamps)
        self._file = file
        self._changed_at = 0.0

    def read(self) -> bool:
        """Takes what is there, once the descriptor is readable; False at the end of the stream."""
        data = os.read(self.descriptor, _READ_BYTES)
        if not data:
            return False
        self.tail.feed(data)
        self.sink.put(self._prefixer.feed(data))
        self._changed_at = time.monotonic()
        if self._file is not None:
            self._keep(self._file, data)
        return True

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
            self.sink.put(self._prefixer.take_rest())
            os.close(self.descriptor)
            self.descriptor = -1
            if self._file is not None:
                self._file.close()

    def progress_time(self) -> float:
        """When ``show_progress`` has something to show (infinity: no progress bar is pending)."""
        return self._changed_at + _PROGRESS_SECONDS if self._prefixer.has_progress else float("inf")

    def show_progress(self, now: float) -> None:
        """Shows a progress bar that has not changed for a moment, although its line has not ended."""
        if now >= self.progress_time():
            self.sink.put(self._prefixer.take_progress())

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
