"""What an agent says, from frames to values. Each is checked: something else may write to its output."""

import contextlib
import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..ending import Exit
from .channel import ChannelError, Tag, content, stream_bytes
from .node import STREAMS

_WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, struct.error)

_MOST_NUMBER = 2**31 - 1  # of processes, statuses, ports and ranks


@dataclass(frozen=True)
class Greeting:
    """What an agent has told of its host.

    ``launcher`` is the address of the launcher as that host sees it, ``address`` the one of the host as the
    launcher sees it; ``port`` is one that is free there; ``machine`` tells whether two hosts are one. None:
    not known.
    """

    launcher: str | None
    address: str | None
    port: int | None
    machine: str | None


def greeting(payload: bytes) -> Greeting:
    """Of a HELLO. Raises ChannelError, as all of these do."""
    with _reading(Tag.HELLO):
        said = content(payload)
        launcher, address = [_address(said[name]) for name in ("launcher", "address")]
        port = None if said["port"] is None else _number(said["port"])
        return Greeting(launcher, address, port, _text(said["machine"]))


def started(payload: bytes) -> tuple[int, int]:
    """Rank and process id, of a STARTED."""
    with _reading(Tag.STARTED):
        rank, pid = content(payload)
        return _number(rank), _number(pid)


def refused(payload: bytes) -> tuple[str, int]:
    """The reason and the status for the job, of a REFUSED."""
    with _reading(Tag.REFUSED):
        reason, status = content(payload)
        return str(reason), _number(status)


def written(payload: bytes) -> tuple[int, str, bytes]:
    """Rank, name of the stream and bytes, of an OUTPUT."""
    with _reading(Tag.OUTPUT):
        rank, stream, data = stream_bytes(payload)
        return rank, STREAMS[stream], data


def exits(payload: bytes) -> list[Exit]:
    """Of an ENDED."""
    with _reading(Tag.ENDED):
        return [
            Exit(_number(rank), _number(code), _text(killer), tuple(map(str, notes)))
            for rank, code, killer, notes in content(payload)
        ]


def stopped(payload: bytes) -> list[int]:
    """The ranks, of a STOPPED."""
    with _reading(Tag.STOPPED):
        return [_number(rank) for rank in content(payload)]


def noticed(payload: bytes) -> bool:
    """Whether the host is about to go, of a NOTICED."""
    with _reading(Tag.NOTICED):
        return _number(content(payload)) != 0


def relayed(payload: bytes) -> tuple[int, int, bytes]:
    """Number of the ssh, number of the stream and bytes, of a FROM_SSH."""
    with _reading(Tag.FROM_SSH):
        return stream_bytes(payload)


def ssh_ended(payload: bytes) -> tuple[int, int]:
    """Number of the ssh and its status, of an SSH_ENDED."""
    with _reading(Tag.SSH_ENDED):
        number, status = content(payload)
        return _number(number), _number(status)


@contextlib.contextmanager
def _reading(tag: Tag) -> Iterator[None]:
    try:
        yield
    except _WRONG:
        raise ChannelError(
            f"what its agent sent as {tag.name} cannot be read: something else writes to its output"
        ) from None


def _number(said: object) -> int:
    if not isinstance(said, int) or abs(said) > _MOST_NUMBER:
        raise ValueError
    return said


def _address(said: object) -> str | None:
    """What sshd tells of a connection that is no socket is no address ("UNKNOWN"), nor to be looked up."""
    with contextlib.suppress(ValueError):
        return str(said) if ipaddress.ip_address(str(said)) else None
    return None


def _text(said: object) -> str | None:
    return None if said is None else str(said)
