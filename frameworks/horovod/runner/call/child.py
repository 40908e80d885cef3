"""The launcher as the caller's child: its start, its output, interrupts, its end.

Nothing of it depends on the thread that calls, nor on what sys.stdout is: a notebook's is no descriptor.
"""

import codecs
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from .call import Outcome
from .link import Messages

_READ_BYTES = 1 << 16
_FOLDER = Path(__file__).resolve().parents[3]  # where this horovod lies
_COMPLAINT = "horovodrun: error: "

# What a Python runs that must find this horovod, wherever it lies, and nothing in the current folder. An
# interrupt before the launcher is ready for it ends it quietly.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "sys.path[:1] = sys.path[:1] if sys.path[0] else []; sys.path.append(sys.argv.pop(1)); "
    "from horovod.runner.call import {0}; {0}.main()"
)


def python_command(executable: str, module: str) -> list[str]:
    """A Python that runs ``main`` of a module of this package; more arguments may follow."""
    return [executable, "-c", _START.format(module), str(_FOLDER)]


@dataclass(frozen=True)
class End:
    """How the launcher ended: its status (minus a signal), what it said of the job, and why it could start
    none.
    """

    status: int
    outcome: Outcome
    complaints: Sequence[str]


@dataclass(frozen=True)
class Caller:
    """What a launcher has of its caller. ``environ`` is its environment, that of this process by default;
    ``stdout`` and ``stderr`` get the output, in place of what ``sys`` has under these names by then;
    ``on_note`` gets what ranks tell, see notes.py, and ``on_start`` what ends the job from any thread.
    """

    environ: Mapping[str, str] | None = None
    stdout: TextIO | None = None
    stderr: TextIO | None = None
    on_note: Callable[[bytes], object] = lambda note: None
    on_start: Callable[[Callable[[], None]], object] = lambda end: None


class Text:
    """The bytes of one pipe, written to a stream of the caller as they come. Complaints are not: they become
    an exception, which would say them a second time.
    """

    def __init__(self, stream: Callable[[], TextIO | None]) -> None:
        self.complaints: list[str] = []  # lines in which the launcher said why it cannot start a job
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""  # the last line, as far as it has come
        self._shown = 0  # how much of it is written

    def feed(self, data: bytes) -> None:
        """The next bytes; none at the end."""
        text = self._decoder.decode(data, final=not data)
        *lines, self._rest = (self._rest + text).split("\n")
        shown = "".join(map(self._line, [line + "\n" for line in lines]))
        if not data:
            shown += self._line(self._rest)
        elif not _COMPLAINT.startswith(self._rest[: len(_COMPLAINT)]):
            shown += self._rest[self._shown :]
            self._shown = len(self._rest)
        show(self._stream(), shown)

    def _line(self, line: str) -> str:
        """What is still to be shown of a line that has come in full."""
        shown, self._shown = self._shown, 0
        if not line.startswith(_COMPLAINT):
            return line[shown:]
        self.complaints.append(line.removeprefix(_COMPLAINT).rstrip("\n"))
        return ""


class Child:
    """A launcher that runs ``words``, options and command of horovodrun. To be used as a context manager, at
    whose end it is gone, or will soon be.
    """

    def __init__(self, words: Sequence[str], call: BinaryIO, results: BinaryIO, caller: Caller) -> None:
        self._link, theirs = socket.socketpair()
        self._said = Messages(caller.on_note)
        self._texts = [Text(lambda: caller.stdout or sys.stdout), Text(lambda: caller.stderr or sys.stderr)]
        descriptors = [theirs.fileno(), call.fileno(), results.fileno()]
        try:
            with theirs:
                self._process = _start(words, descriptors, caller.environ)
            caller.on_start(self._process.terminate)
        except BaseException:  # an interrupt may come when the launcher runs already: it must not be kept
            self._link.close()
            raise

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """The launcher ends when the link does, should it still run."""
        for stream in (self._link, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def wait(self) -> End:
        """Shows the output until the launcher has ended.

        An exception that comes meanwhile, such as KeyboardInterrupt, ends the job, and then is raised; a
        second one ends it at once.
        """
        interruption: BaseException | None = None
        with self._selector() as selector:
            while True:
                try:
                    _attend(selector)
                    status = self._process.wait()
                    break
                except BaseException as error:
                    interruption = interruption or error
                    is_interrupt = isinstance(error, KeyboardInterrupt)
                    self._process.send_signal(signal.SIGINT if is_interrupt else signal.SIGTERM)
        if interruption is not None:
            raise interruption
        return End(status, Outcome.decoded(self._said.outcome), self._texts[1].complaints)

    @contextlib.contextmanager
    def _selector(self) -> Iterator[selectors.BaseSelector]:
        assert self._process.stdout is not None and self._process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ, self._texts[0].feed)
            selector.register(self._process.stderr, selectors.EVENT_READ, self._texts[1].feed)
            selector.register(self._link, selectors.EVENT_READ, self._said.feed)
            yield selector


def _start(
    words: Sequence[str], descriptors: Sequence[int], environ: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    own = [",".join(map(str, descriptors)), str(os.getpid())]
    return subprocess.Popen(
        [*python_command(sys.executable, "service"), *own, *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        start_new_session=True,  # an interrupt from the terminal comes from here, once
    )


def _attend(selector: selectors.BaseSelector) -> None:
    """Hands what comes to those who take it, until all streams have ended."""
    while selector.get_map():
        for key, _ in selector.select():
            try:
                data = os.read(key.fd, _READ_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
            key.data(data)


def show(stream: TextIO | None, text: str) -> None:
    """Writes what ranks have printed, as far as the stream can take it."""
    if stream is not None and text:
        with contextlib.suppress(Exception):  # nobody reads it any more: no reason for a job to end
            _write(stream, text)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
    stream.flush()
