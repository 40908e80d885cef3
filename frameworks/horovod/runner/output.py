"""How the output of the ranks is shown: each line with its rank in front, and otherwise unchanged.

Terms: a *line* ends in a newline byte; the *rest* is what has come behind the last one. A *progress bar* is a
line that is written over and over: its *versions* have carriage returns between them. Lines of different
ranks never mix: a rest waits for its newline, unless it is a progress bar, or a prompt that somebody is to
answer. Bytes are never decoded, except for a bar that must fit into the width of a terminal.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from horovod.bootstrap.text import escaped
from horovod.bootstrap.tracebacks import is_of_program

MAX_LINE = 8 << 20
ERASE_LINE = b"\r\x1b[K"
_TAIL_BYTES = 1 << 16
_STEERING = re.compile(rb"\x1b\[[0-9;]*m")
_STEERED = re.compile(rb"(%s)" % _STEERING.pattern)
# Of the eight that every terminal has: readable on light and on dark, and no red, which looks like an error.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
TRACEBACK = "Traceback (most recent call last):"
_CALL = re.compile(r'  File "([^"]+)", line \d+')
_CRASH = re.compile(
    r"((?:terminate called .*\n(?:  what\(\): .*\n)?)?)Fatal Python error: (.*\n)", re.MULTILINE
)


class LinePrefixer:
    """One stream of one rank. Bytes in, whole lines with their prefix out.

    A line longer than MAX_LINE is cut there, so that a rank which never ends its line cannot fill the
    memory.
    """

    def __init__(self, label: str, timestamps: bool = False) -> None:
        self._label = label.encode()
        self._timestamps = timestamps
        self._rest = bytearray()

    def relabel(self, label: str) -> None:
        """What stands in front of the lines from now on."""
        self._label = label.encode()

    def feed(self, data: bytes) -> bytes:
        """The lines that ``data`` completes."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest += data
            return self.take_rest() + b"\n" if len(self._rest) > MAX_LINE else b""
        lines = bytes(self._rest) + data[: end - 1]
        self._rest = bytearray(data[end:])
        prefix = self._prefix()
        return b"\n".join(self._shown(prefix, line) for line in lines.split(b"\n")) + b"\n"

    def take_progress(self) -> bytes:
        """The rest up to its last carriage return: a progress bar, whose line does not end while it grows."""
        end = self._rest.rfind(b"\r") + 1
        if end == 0:
            return b""
        progress = self._prefix() + self._rest[:end]
        del self._rest[:end]
        return progress

    def take_rest(self) -> bytes:
        """The last line, when the stream ended without a newline, or a prompt."""
        rest = self._shown(self._prefix(), bytes(self._rest)) if self._rest else b""
        self._rest.clear()
        return rest

    @property
    def has_rest(self) -> bool:
        """Whether ``take_rest`` has something."""
        return bool(self._rest)

    @property
    def has_progress(self) -> bool:
        """Whether ``take_progress`` has something."""
        return b"\r" in self._rest

    def _shown(self, prefix: bytes, line: bytes) -> bytes:
        return prefix + line

    def _prefix(self) -> bytes:
        return time.asctime().encode() + self._label if self._timestamps else self._label


class TerminalPrefixer(LinePrefixer):
    """The same for a terminal, which shows the last version of a progress bar only, within its width."""

    def __init__(self, label: str, timestamps: bool, width: Callable[[], int]) -> None:
        super().__init__(label, timestamps)
        self._width = width
        self._is_shown = False  # the bar, as it is now

    def feed(self, data: bytes) -> bytes:
        """The lines that ``data`` completes."""
        self._is_shown = False
        return super().feed(data)

    def take_progress(self) -> bytes:
        """The bar as it is now. It stays in the rest, because more of this version may come."""
        if not self.has_progress:
            return b""
        self._is_shown = True
        version = _last_version(bytes(self._rest))
        self._rest = bytearray(b"\r" + version)
        prefix = self._prefix()
        room = max(1, self._width() - len(_STEERING.sub(b"", prefix)) - 1)
        return ERASE_LINE + prefix + _cut(version, room)

    @property
    def has_progress(self) -> bool:
        """Whether the bar has changed since it was taken."""
        return not self._is_shown and b"\r" in self._rest

    def _shown(self, prefix: bytes, line: bytes) -> bytes:
        return ERASE_LINE + prefix + _last_version(line) if b"\r" in line else prefix + line


def _last_version(line: bytes) -> bytes:
    """What a terminal shows of a line that was written over."""
    return next((version for version in reversed(line.split(b"\r")) if version.strip()), b"")


def _cut(version: bytes, room: int) -> bytes:
    """The first ``room`` characters, and all colours: the last one ends the colours of the bar."""
    kept = b""
    for piece in _STEERED.split(version):
        if not _STEERING.fullmatch(piece):
            text = piece.decode(errors="replace")[:room]
            room -= len(text)
            piece = text.encode()
        kept += piece
    return kept


@dataclass(frozen=True)
class Display:
    """What the user has asked to see.

    ``ranks``: those whose output is shown; None: all. ``stdin_rank``: the one that reads the standard input
    of the launcher, whose prompts are shown although their line has not ended. ``has_prefix``: lines begin
    with their rank.
    """

    timestamps: bool = False
    ranks: Collection[int] | None = None
    stdin_rank: int | None = None
    has_prefix: bool = True

    def shows(self, rank: int) -> bool:
        """Whether the output of this rank is shown."""
        return self.ranks is None or rank in self.ranks

    def label(self, rank: int, stream: str, on_terminal: bool, name: str | None = None) -> str:
        """What stands in front of the lines of a rank; ``name``: what it is called, if not by its number."""
        if not self.has_prefix:
            return ""
        label = f"[{rank if name is None else name}]<{stream}>:"
        if on_terminal and _is_coloured():
            return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{label}\x1b[0m"
        return label

    def prefixer(self, rank: int, stream: str, on_terminal: bool, name: str | None = None) -> LinePrefixer:
        """What puts the prefix in front of the lines of one stream of a rank, or of several with a name."""
        label = self.label(rank, stream, on_terminal, name)
        if not on_terminal:
            return LinePrefixer(label, self.timestamps)
        return TerminalPrefixer(label, self.timestamps, lambda: shutil.get_terminal_size().columns)


def _is_coloured() -> bool:
    """As users ask for it of every program (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def emphasized(report: bytes, on_terminal: bool) -> bytes:
    """A report whose first line stands out on a terminal."""
    if not on_terminal or not _is_coloured():
        return report
    first, end, rest = report.partition(b"\n")
    return b"\x1b[1;31m" + first + b"\x1b[0m" + end + rest


class Tail:
    """The last bytes of a stream, for the report on a rank that failed."""

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, data: bytes) -> None:
        """Takes the stream's next bytes."""
        self._bytes = (self._bytes + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def text(self) -> str:
        """All that is kept, a progress bar's versions each in a line."""
        return self._bytes.decode(errors="replace").replace("\r", "\n")

    def traceback(self) -> str:
        """The last one, and all that has come behind it; "" where there is none."""
        _, title, rest = self.text().rpartition(TRACEBACK)
        return title + rest if title else ""

    def lines(self, count: int, width: int) -> list[str]:
        """Its last lines that are not blank, shortened to ``width`` characters. Of a traceback in them those
        of the program, and of no library.
        """
        lines = [line.rstrip() for line in self.text().split("\n") if line.strip()]
        return [_shortened(line, width) for line in _telling(lines)[-count:]] if count > 0 else []


def _shortened(line: str, width: int) -> str:
    text = escaped(line)
    return text if len(text) <= width else text[: width - 3] + "..."


def _telling(lines: list[str]) -> list[str]:
    """Without the calls of libraries at the end of the last traceback, if there are others in it."""
    begin = max((n for n, line in enumerate(lines) if line.startswith(TRACEBACK)), default=len(lines))
    calls = [(n, call[1]) for n in range(begin, len(lines)) if (call := _CALL.match(lines[n]))]
    own = [n for n, name in calls if is_of_program(name)]
    if not own or own[-1] == calls[-1][0]:
        return lines
    first = next(n for n, _ in calls if n > own[-1])
    behind = (n for n in range(calls[-1][0] + 1, len(lines)) if not lines[n].startswith("  "))
    return [*lines[:first], *lines[next(behind, len(lines)) :]]


def crash(stderr: Tail, count: int, width: int) -> list[str]:
    """What faulthandler wrote of a crash: the error, and the innermost calls of the thread that it hit."""
    text = stderr.text()
    *_, last = [None, *_CRASH.finditer(text)]
    if last is None:
        return []
    lines = [*last[1].splitlines(), f"Fatal Python error: {last[2].strip()}"]
    threads = text[last.end() :]
    # A thread that Python does not know is not among them.
    begin = max(0, threads.find("Current thread "))
    _, _, calls = threads[begin:].partition("(most recent call first):\n")
    for line in calls.splitlines():
        if not line.startswith("  "):
            break
        lines.append(line.strip())
    return [_shortened(line, width) for line in lines[:count]]
