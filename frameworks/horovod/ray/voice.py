"""What a rank says: its output, and what it logs, over its connection to where the ranks meet.

Ray would show the output, too, but takes lines of different ranks for repetitions that nobody wants to see.
"""

import contextlib
import faulthandler
import fcntl
import os
import selectors
import struct
import sys
import termios
import threading
import time
from typing import Any

import cloudpickle

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.store.client import StoreClient

from .meeting import LOG, OUTPUT

STREAMS = ("stdout", "stderr")
_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # the largest that a user may have
_DRAIN_SECONDS, _LOOK_SECONDS = 2.0, 0.001


class Voice:
    """Takes the place of stdout and stderr of this process, for good. The store is its own from now on."""

    def __init__(self, store: StoreClient) -> None:
        self._store: StoreClient | None = store
        self._lock = threading.Lock()  # of the store
        self._is_busy = False
        self._pipes: dict[int, str] = {}  # the ends to read
        self._files: dict[str, int] = {}  # where Ray keeps the output
        _flush()
        for descriptor, stream in enumerate(STREAMS, 1):
            self._files[stream] = os.dup(descriptor)
            self._pipes[_redirected(descriptor)] = stream
        if faulthandler.is_enabled():  # of a crash nothing of this process can tell any more
            faulthandler.enable(self._files["stderr"])
        threading.Thread(target=self._run, name="hvd-voice", daemon=True).start()

    def put(self, value: Any) -> None:
        """Sends a value to the callbacks of the driver. Raises BootstrapError where it is gone."""
        data = cloudpickle.dumps(value)
        with self._lock:
            if self._store is None:
                raise BootstrapError("ray_logger.log: the driver does not hear this rank any more")
            self._store.set(LOG, data)

    def drain(self) -> None:
        """Waits until all that has been written so far is where it goes."""
        _flush()
        end = time.monotonic() + _DRAIN_SECONDS
        while (self._is_busy or any(map(_unread, self._pipes))) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                self._is_busy = True
                with contextlib.suppress(BlockingIOError):
                    self._say(self._pipes[key.fd], os.read(key.fd, _READ_BYTES))
                self._is_busy = False

    def _say(self, stream: str, data: bytes) -> None:
        """To the driver; to Ray's files, once that is gone."""
        with self._lock:
            if self._store is not None:
                try:
                    self._store.set(OUTPUT + stream, data)
                    return
                except (BootstrapError, OSError):
                    self._store.close()
                    self._store = None
        with contextlib.suppress(OSError):
            os.write(self._files[stream], data)


def _redirected(descriptor: int) -> int:
    """Makes a descriptor the end of a pipe; returns the other one."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.dup2(write_end, descriptor)
    os.close(write_end)
    return read_end


def _unread(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or another object
            stream.flush()
