"""Why a rank's engine gave up, as the rank tells the launcher over its authenticated link.

A verdict is one message of five short fields: numbers in decimal digits, then the reason; one on absent ranks
names them in a sixth. Nothing in it is executed, and whatever does not fit is refused together with the
connection.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import BootstrapError

MAX_REASON = 4096
_MAX_DIGITS = 8
_MAX_ABSENT = 1 << 16
_NOBODY = -1


class Kind(enum.IntEnum):
    """What kind of event ended the job, as the core numbers them; ABSENT is said before it runs."""

    DIED = 1  # the culprit's process has ended without leaving the job
    SILENT = 2  # the culprit answers no heartbeat
    LEFT = 3  # the culprit has left the job in order, and others need it
    LINK = 4  # the connection between culprit and other broke, and both are alive
    CORRUPT = 5  # the culprit has sent what it cannot have meant to send
    STALL = 6  # an operation waits for the culprit, or for no single rank
    FAULT = 7  # some rank cannot go on
    ABSENT = 8  # the culprit, or more than one rank, has not come through hvd.init()


class Link(enum.IntEnum):
    """Which of the connections between two ranks broke."""

    WATCH = 0
    CONTROL = 1
    DATA = 2
    SHARE = 3


class Verdict(NamedTuple):
    """What ``observer`` holds for the first cause. ``culprit`` is None when it is no single rank's doing;
    ``other`` and ``link`` mean something for LINK only, and ``absent`` for ABSENT.
    """

    observer: int
    kind: Kind
    culprit: int | None
    reason: str
    other: int | None = None
    link: Link = Link.WATCH
    absent: tuple[int, ...] = ()


def on_absent(ranks: Sequence[int], reason: str) -> list[bytes]:
    """The fields of a verdict on ranks that have not come, as ``from_fields`` reads them."""
    culprit = ranks[0] if len(ranks) == 1 else _NOBODY
    numbers = [Kind.ABSENT, culprit, _NOBODY, Link.WATCH]
    return [
        *(b"%d" % each for each in numbers),
        reason.encode()[:MAX_REASON],
        b" ".join(b"%d" % each for each in ranks),
    ]


def from_fields(observer: int, fields: Sequence[bytes], size: int) -> Verdict:
    """The verdict of a rank in a job of ``size``. Raises BootstrapError for anything but a sound one."""
    if not 5 <= len(fields) <= 6 or len(fields[4]) > MAX_REASON or len(fields[-1]) > _MAX_ABSENT:
        raise BootstrapError("not a verdict")
    kind, culprit, other, link = (_number(field) for field in fields[:4])
    absent = [_rank(_number(word), size) for word in b"".join(fields[5:]).split()]
    if len(fields) == 6 and (kind != Kind.ABSENT or not absent or None in absent):
        raise BootstrapError("a verdict on absent ranks that does not name them")
    try:
        return Verdict(
            observer,
            Kind(kind),
            _rank(culprit, size),
            fields[4].decode(errors="replace"),
            _rank(other, size),
            Link(link),
            tuple(rank for rank in absent if rank is not None),
        )
    except ValueError:
        raise BootstrapError("a verdict of an unknown kind") from None


def _number(field: bytes) -> int:
    digits = field.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise BootstrapError("a verdict without a number")
    return int(field)


def _rank(number: int, size: int) -> int | None:
    if not _NOBODY <= number < size:
        raise BootstrapError("a verdict on a rank that does not exist")
    return None if number == _NOBODY else number
