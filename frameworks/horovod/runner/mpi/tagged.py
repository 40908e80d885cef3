"""The output of an MPI launcher, taken apart again: which bytes are whose. Pure: bytes in, pieces out.

The launcher puts a tag in front of each piece that it has read from a rank, also in the middle of a line, so
that lines of several ranks are mixed in its output. A piece goes up to the next tag, at most to the end of a
line; what comes behind that without a tag are words of the launcher itself.
"""

import re

_LONGEST_TAG = 120
_TAG_BEGIN = b"["


class Untangler:
    """One stream of a launcher. ``tag`` matches a tag; its group is the rank, if the launcher tells it."""

    def __init__(self, tag: "re.Pattern[bytes]") -> None:
        self._tag = tag
        self._held = b""  # may be the beginning of a tag
        self._rank: int | None = None

    def feed(self, data: bytes) -> list[tuple[int | None, bytes]]:
        """The pieces that are known now: (rank, or None for the launcher; bytes)."""
        data = self._held + data
        end = self._undecided(data)
        self._held = data[end:]
        return self._pieces(data[:end])

    def end(self) -> list[tuple[int | None, bytes]]:
        """What is left when the stream has ended."""
        held, self._held = self._held, b""
        return self._pieces(held)

    def _undecided(self, data: bytes) -> int:
        """Where the last bytes begin that more bytes may make a tag of."""
        begin = data.rfind(_TAG_BEGIN, max(0, len(data) - _LONGEST_TAG))
        if begin < 0 or self._tag.match(data, begin) or b"\n" in data[begin:]:
            return len(data)
        return begin

    def _pieces(self, data: bytes) -> list[tuple[int | None, bytes]]:
        pieces: list[tuple[int | None, bytes]] = []
        position = 0
        for found in self._tag.finditer(data):
            self._add(pieces, data[position : found.start()])
            self._rank = int(found[1])
            position = found.end()
        self._add(pieces, data[position:])
        return pieces

    def _add(self, pieces: list[tuple[int | None, bytes]], data: bytes) -> None:
        """A piece of the current rank, and behind the end of its line, what the launcher says itself."""
        if self._rank is not None and data:
            end = data.find(b"\n") + 1
            pieces.append((self._rank, data[: end or len(data)]))
            data = data[end:] if end else b""
            if end:
                self._rank = None
        if data:
            pieces.append((None, data))
