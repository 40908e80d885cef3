"""What the values of horovodrun's options may be: one function reads one kind, or says why it cannot."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from horovod.bootstrap.paths import absolute

_Value = TypeVar("_Value")

AUTO = "auto"
BINDINGS = ("core", "numa", "none")
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")

_MOST_PORT = 65535
_MOST_START_SECONDS = 86400
_INTERFACE = re.compile(r"[\w.:/@-]+", re.ASCII)


def integer(text: str) -> int:
    """A whole number, at least 0."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def rank_count(text: str) -> int | str:
    """A number of ranks, or "auto"."""
    if text == AUTO:
        return AUTO
    if not text.lstrip("+-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of ranks nor {AUTO}")
    return integer(text)


def rank_list(text: str) -> list[int]:
    """Ranks and ranges of them, such as 0,4-7."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks, such as 0 or 0,4-7")
        begin, end = int(first), int(last or first)
        if end < begin or end - begin > 1 << 20:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of ranks, such as 4-7")
        ranks.update(range(begin, end + 1))
    return sorted(ranks)


def port(text: str) -> int:
    """The number of a TCP port."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:9]) <= _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: expected 1 to {_MOST_PORT}")
    return int(text)


def address(text: str) -> str:
    """Host and port, such as node1:29500."""
    from .. import meeting

    _read_by(meeting.split, text)
    return text


def metrics(text: str) -> str:
    """Where a job tells how far it is: a port, HOST:PORT or a file; several with commas between."""
    from ..progress import places

    _read_by(places.parse, text)
    return text


def _read_by(parse: Callable[[str], _Value], text: str) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_of(names: Sequence[str], text: str) -> str:
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
    return text


def place(text: str) -> int | str:
    """A position, or "auto"."""
    return AUTO if text == AUTO else integer(text)


def port_range(text: str) -> str:
    """Ports from the first to the last, such as 20000-20999."""
    first, dash, last = text.partition("-")
    if not dash:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of ports, such as 20000-20999")
    if port(first) > port(last):
        raise argparse.ArgumentTypeError(f"{text!r}: the first port comes behind the last")
    return f"{int(first)}-{int(last)}"


def interfaces(text: str) -> str:
    """Names of network interfaces, such as eth0,eth1."""
    names = [name.strip() for name in text.split(",")]
    if not all(_INTERFACE.fullmatch(name) for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of network interfaces, such as eth0,eth1")
    return ",".join(dict.fromkeys(names))


def seconds(text: str) -> float:
    """A time of at least 0 seconds."""
    return float(number(text))


def start_seconds(text: str) -> int:
    """A time for the start, in whole seconds. More than ranks can be told means as long as they can wait."""
    return min(integer(text), _MOST_START_SECONDS)


def whole(text: str) -> str:
    """A whole number, as a variable carries it."""
    return str(integer(text))


def megabytes(text: str) -> str:
    """MiB, in bytes."""
    return str(integer(text) << 20)


def number(text: str) -> str:
    """A number of at least 0."""
    value = _real(text)
    if not 0 <= value < 1e12:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return f"{value:g}"


def share(text: str) -> str:
    """A number from 0 to 1."""
    value = _real(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return f"{value:g}"


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def cores(text: str) -> str:
    """Numbers of cores, such as 0,2,4."""
    if not all(part.isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of cores, such as 0,2,4")
    return text


def level(text: str) -> str:
    """A level of the log."""
    if text.upper() not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(LEVELS)}")
    return text.lower()


def binding(text: str) -> str:
    """What ranks are bound to."""
    return _one_of(BINDINGS, text)


def shell(text: str) -> str:
    """A shell that can complete options."""
    from .completion import SHELLS

    return _one_of(SHELLS, text)


def host_names(text: str) -> list[str]:
    """Names of hosts, such as node1,gpu[01-16]; an IPv6 address may stand in brackets."""
    from horovod.bootstrap import slurm

    try:
        return slurm.nodes(re.sub(r"\[([^][]*:[^][]*)\]", r"\1", text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of hosts, such as node1,node[3-5]") from None


def absolute_path(text: str) -> str:
    """A path, from here."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path")
    try:
        return absolute(text)
    except FileNotFoundError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def remote_shell(text: str) -> str:
    """A command that runs a program on the host ``{host}``."""
    from ..nodes import remote_shell as shells

    _read_by(shells.parse, text)
    return text


def preemption_signal(text: str) -> str:
    """A signal that can ask a worker to end, by its name without SIG."""
    from horovod.elastic.asking import signal_named

    return _read_by(signal_named, text).name.removeprefix("SIG")


def chaos(text: str) -> object:
    """Faults that are to be brought about."""
    from ..elastic import chaos as faults  # only for those who need it: the help is to be quick

    return _read_by(faults.parse, text)
