"""Which start of the job a rank means: its process counts its own starts, from 1 on. Pure.

A rank may run one program after another, as with ``sh -c "python a.py && python b.py"``, and be through with
the first before others are. What the programs before have set in the store is none of the next one's.
"""

import re
from collections.abc import Sequence

from ..network.auth import Terms
from .arrivals import Arrivals
from .messages import Tag

_KEY = re.compile(rb"([0-9]{1,9})/(.*)", re.DOTALL)


class Rounds:
    """Of the processes that have acted as one rank or another, the latest of each."""

    def __init__(self) -> None:
        self._offsets: dict[int, tuple[bytes, int]] = {}  # by rank: the process, and what to add

    def offset(self, terms: Terms, token: bytes, arrivals: Arrivals) -> int:
        """What to add to the numbers of the process ``token``, which begins the start that ``terms`` name: a
        new process of a rank that has come to the latest start means the next one.
        """
        rank = terms.connector
        known, offset = self._offsets.get(rank, (b"", 0))
        if known != token:
            wanted = arrivals.generation + arrivals.has_arrived(rank)
            offset = max(0, wanted - terms.generation)
            self._offsets[rank] = token, offset
        return offset


def moved(tag: Tag, fields: list[bytes], offset: int) -> list[bytes]:
    """The fields of a request, with the keys of the store for those of a process: "<generation>/..."; others
    are as they are.
    """
    if not offset or tag not in (Tag.SET, Tag.ADD, Tag.WAIT):
        return fields
    keys = slice(1, None) if tag == Tag.WAIT else slice(0, 1)
    return [*fields[: keys.start], *_moved(fields[keys], offset), *fields[keys.stop or len(fields) :]]


def _moved(keys: Sequence[bytes], offset: int) -> list[bytes]:
    found = [_KEY.fullmatch(key) for key in keys]
    return [
        b"%d/%s" % (int(match[1]) + offset, match[2]) if match else key
        for key, match in zip(keys, found, strict=True)
    ]
