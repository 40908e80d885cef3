"""The ends of pipes in a loop: bytes come and go, and nobody waits for the other side."""

import os
import selectors
from collections.abc import Callable

_READ_BYTES = 1 << 18
_MOST_READS = 8  # a pipe holds 1 MiB at most, where nobody has raised the limit


class ReadPipe:
    """Reads a descriptor, which becomes its own. ``on_bytes`` gets what comes; no bytes: the end, after which
    the descriptor is closed. It is held as soon as something comes that ``has_room`` has no room for.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        descriptor: int,
        on_bytes: Callable[[bytes], object],
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Raises OSError where the system refuses it; then the descriptor stays the caller's."""
        os.set_blocking(descriptor, False)
        self._selector = selector
        self._descriptor = descriptor
        self._on_bytes, self._has_room = on_bytes, has_room
        self._is_watched = False
        self.hold(False)

    @property
    def is_open(self) -> bool:
        """Whether the end has not come yet."""
        return self._descriptor >= 0

    def hold(self, is_held: bool) -> None:
        """Reads nothing while it is held, so that the other side has to wait."""
        if self.is_open and self._is_watched == is_held:
            if is_held:
                self._selector.unregister(self._descriptor)
            else:
                self._selector.register(self._descriptor, selectors.EVENT_READ, self._on_readable)
            self._is_watched = not is_held

    def drain(self) -> None:
        """Takes what is there now; whoever goes on writing is not waited for."""
        for _ in range(_MOST_READS):
            if not (self.is_open and self._read()):
                return

    def close(self) -> None:
        """Idempotent; what is still in the pipe is lost."""
        if self.is_open:
            self.hold(True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_readable(self) -> None:
        if self.is_open and not self._has_room():
            self.hold(True)
        else:
            self._read()

    def _read(self) -> bool:
        """Whether something came."""
        if not self.is_open:  # closed in the same round
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
        self._on_bytes(data)
        return bool(data)


class WritePipe:
    """Writes to a descriptor, which becomes its own."""

    def __init__(self, selector: selectors.BaseSelector, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._selector = selector
        self._descriptor = descriptor
        self._unsent = bytearray()
        self._is_watched = False

    @property
    def unsent(self) -> int:
        """How many bytes the kernel has not taken yet, and still may."""
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        """Queues ``data``; without effect after ``close``."""
        if self._descriptor >= 0:
            self._unsent += data
            self._flush()

    def close(self) -> None:
        """Idempotent; what is unsent is lost."""
        if self._descriptor >= 0:
            self._unsent.clear()
            self._watch()
            os.close(self._descriptor)
            self._descriptor = -1

    def _flush(self) -> None:
        if self._descriptor < 0:  # closed in the same round
            return
        while self._unsent and (count := self._take()):
            del self._unsent[:count]
        self._watch()

    def _watch(self) -> None:
        """Waits for the reader while there is something for it."""
        if bool(self._unsent) != self._is_watched:
            self._is_watched = not self._is_watched
            if self._is_watched:
                self._selector.register(self._descriptor, selectors.EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(self._descriptor)

    def _take(self) -> int:
        """How many bytes the kernel has taken."""
        try:
            return os.write(self._descriptor, self._unsent)
        except BlockingIOError:
            return 0
        except OSError:  # nobody reads any more: the end of the other direction says so, too
            return len(self._unsent)
