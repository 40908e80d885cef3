"""A traceback that several ranks write at one time is shown once, for all of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from .output import TRACEBACK

_SECONDS = 1.0
_NEVER = float("inf")
_BEGIN = re.compile(rb"^(?:Exception in thread .*:\n)?" + re.escape(TRACEBACK.encode()), re.MULTILINE)


class Stream(Protocol):
    """The stderr of a rank; see ``rank_output.RankOutput``."""

    is_ended: bool

    def pass_on(self, data: bytes) -> None:
        """Shows what was kept back."""


class Repeats:
    """Keeps back what ranks write from a traceback on, for a moment in which others may write the same.

    ``show`` gets a text that several ranks have written, and their numbers.
    """

    def __init__(self, show: Callable[[Collection[int], bytes], None]) -> None:
        self._show = show
        self._streams: dict[Stream, int | None] = {}  # all, with their ranks
        self._kept: dict[Stream, bytearray] = {}
        self._due = _NEVER

    def name(self, stream: Stream, rank: int | None) -> None:
        """A stream whose lines are those of a rank from now on; None: of a process without one."""
        self._streams[stream] = rank

    def take(self, stream: Stream, data: bytes) -> bytes:
        """What to show now of the next bytes of a stream."""
        if stream in self._kept:
            self._kept[stream] += data
            return b""
        found = _BEGIN.search(data)
        if found is None:
            return data
        self._kept[stream] = bytearray(data[found.start() :])
        self._due = min(self._due, time.monotonic() + _SECONDS)
        return data[: found.start()]

    def ended(self) -> None:
        """A stream has ended. Nothing more comes when all have."""
        if all(stream.is_ended for stream in self._streams):
            self.release()
        self._streams = {each: rank for each, rank in self._streams.items() if self._may_show(each)}

    def next_time(self) -> float:
        """When to call ``release``."""
        return self._due

    def release(self) -> None:
        """Shows what is kept."""
        kept, self._kept, self._due = self._kept, {}, _NEVER
        ranks: dict[bytes, set[int]] = {}
        for stream, text in kept.items():
            rank = self._streams.get(stream)
            if rank is not None and text.endswith(b"\n"):
                ranks.setdefault(bytes(text), set()).add(rank)
        for stream, text in kept.items():
            alike = ranks.get(bytes(text))
            if self._streams.get(stream) is None or alike is None or len(alike) == 1:
                stream.pass_on(bytes(text))
            elif alike:
                self._show(sorted(alike), bytes(text))
                alike.clear()

    def _may_show(self, stream: Stream) -> bool:
        return not stream.is_ended or stream in self._kept


def ranges(ranks: Iterable[int]) -> str:
    """Numbers as people write them, such as 0-3,7."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
