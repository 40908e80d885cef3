"""Writes to the launcher's own stdout or stderr, on a thread of its own.

A reader who is slow, or stopped, must hold back the ranks (their pipes fill up), but never the launcher's
loop, which has to see signals and deaths all the time.
"""

import errno
import os
import select
import threading
import time
from collections.abc import Callable

from .output import ERASE_LINE

_FULL_BYTES = 1 << 20
_BAR_SECONDS = 1.0
_POLL_SECONDS = 0.005
# A blocking pipe takes all or nothing, and ``written`` is to show a slow reader's progress.
_WRITE_BYTES = 4096


class Sink:
    """A bounded queue in front of one descriptor. ``on_room`` is called on the writing thread when it has
    emptied.

    When the reader is gone, what comes later is thrown away: a job does not end because its log is no
    longer read.
    """

    def __init__(self, descriptor: int, on_room: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_room = on_room
        self._changed = threading.Condition()
        self._queue: list[bytes] = []  # guarded by _changed, like all below
        self._queued = 0
        self.written = 0  # bytes so far
        self._is_broken = False
        self.has_lost = False  # what somebody would have read
        self._is_closed = False
        self._line_of: object | None = None  # whose line has not ended
        self._is_bar = False
        self._bar_time = 0.0
        self.is_terminal = os.isatty(descriptor)
        # Is told what nobody owns, the launcher's own words, and says whether nobody else is to see them.
        self.takes_message: Callable[[bytes], bool] = lambda data: False
        # Is told why the rest is lost, on the writing thread; not of a reader that has gone of itself.
        self.on_loss: Callable[[str], None] = lambda reason: None
        self._thread = threading.Thread(
            target=self._write_queue, name=f"horovod-sink-{descriptor}", daemon=True
        )
        self._thread.start()

    def put(self, data: bytes, owner: object | None = None) -> None:
        """Queues whole lines, or a line without its newline, which only its ``owner`` may go on with: when
        somebody else comes before, that line is ended, or taken off a terminal, where a bar comes again.
        """
        if owner is None and data and self.takes_message(data):
            return
        with self._changed:
            if not data or self._is_broken:
                return
            if self._line_of is not None and self._line_of is not owner:
                data = (ERASE_LINE if self._is_bar and self.is_terminal else b"\n") + data
            ended = data[-1:] in (b"\n", b"\r")
            self._line_of = None if ended else owner or object()
            self._is_bar = data.startswith(ERASE_LINE)
            self._bar_time = time.monotonic()
            self._queue.append(data)
            self._queued += len(data)
            self._changed.notify()

    def say(self, text: str, owner: object | None = None) -> None:
        """A line of the launcher's own; one with an ``owner`` is no event, and is shown in any case."""
        self.put(f"horovodrun: {text}\n".encode(errors="replace"), owner)

    def shows_bar_beside(self, owner: object) -> bool:
        """Whether another's progress bar is on the last line of a terminal, and has just moved."""
        with self._changed:
            is_other = self._is_bar and self._line_of is not None and self._line_of is not owner
            return is_other and self.is_terminal and time.monotonic() < self._bar_time + _BAR_SECONDS

    @property
    def is_full(self) -> bool:
        """Whether to stop reading from the ranks until ``on_room``."""
        return self._queued >= _FULL_BYTES

    @property
    def queued(self) -> int:
        """Bytes that wait to be written."""
        return self._queued

    @property
    def is_idle(self) -> bool:
        """Whether everything is written."""
        return self._queued == 0

    def flush(self, seconds: float) -> None:
        """Waits until everything is written, at most so long."""
        end = time.monotonic() + seconds
        while not self.is_idle and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Ends the thread, unless it hangs in a write that nobody takes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self.is_idle:
            self._thread.join()

    def _write_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                if not self._queue:
                    return
                data = b"".join(self._queue)
                self._queue.clear()
            self._write(data)
            with self._changed:
                self._queued -= len(data)
            self._on_room()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                count = self._write_some(view[:_WRITE_BYTES])
                self.written += count
                view = view[count:]
        except OSError as error:
            with self._changed:
                self._is_broken = True
            has_left = error.errno == errno.EPIPE or (error.errno == errno.EIO and self.is_terminal)
            if not has_left:
                self.has_lost = True
                self.on_loss(error.strerror or str(error))

    def _write_some(self, data: memoryview) -> int:
        """Somebody who has the same pipe or terminal, as a rank or ssh, may have made it non-blocking."""
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
