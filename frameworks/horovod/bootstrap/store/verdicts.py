"""Why a rank's engine gave up, as the rank tells the launcher over its authenticated link.

A verdict is one message of five short fields: numbers in decimal digits, then the reason. Nothing in it is
executed, and whatever does not fit is refused together with the connection.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import BootstrapError

MAX_REASON = 4096
_MAX_DIGITS = 8
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
    ``other`` and ``link`` mean something for LINK only.
    """

    observer: int
    kind: Kind
    culprit: int | None
    reason: str
    other: int | None = None
    link: Link = Link.WATCH


def fields_of(kind: Kind, culprit: int | None, reason: str) -> list[bytes]:
    """What ``from_fields`` reads."""
    text = reason.encode()[:MAX_REASON]
    return [b"%d" % kind, b"%d" % (_NOBODY if culprit is None else culprit), b"%d" % _NOBODY, b"0", text]


def from_fields(observer: int, fields: Sequence[bytes], size: int) -> Verdict:
    """The verdict of a rank in a job of ``size``. Raises BootstrapError for anything but a sound one."""
    if len(fields) != 5 or len(fields[4]) > MAX_REASON:
        raise BootstrapError("not a verdict")
    kind, culprit, other, link = (_number(field) for field in fields[:4])
    try:
        return Verdict(
            observer,
            Kind(kind),
            _rank(culprit, size),
            fields[4].decode(errors="replace"),
            _rank(other, size),
            Link(link),
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
