"""Texts for people, written as the core does: text from outside (names, paths, what peers say) within a
message of ours, and the lines that HOROVOD_LOG_LEVEL asks for.
"""

import contextlib
import os
import time
from collections.abc import Mapping

_LONGEST_SHOWN = 200
_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


def escaped(text: str, keeps_lines: bool = False) -> str:
    r"""``text`` with everything that is invisible, steers a terminal or is no character written out.

    Args:
        text: any text, also one with surrogates for bytes that were none.
        keeps_lines: whether line breaks stay, as they do in texts that have several lines.

    Returns:
        The text with ``\x1b``, ``\n``, ``\u202e`` and their like in place of such characters. Escaping it
        again changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or (keeps_lines and c == "\n") else c.encode("unicode_escape").decode()
        for c in text
    )


def shown(name: str) -> str:
    """A name from outside within a message: ``escaped``, and without its middle where it is long."""
    text = escaped(name)
    if len(text) <= _LONGEST_SHOWN:
        return text
    note = f"...({len(name.encode(errors='replace'))} bytes)..."
    side = (_LONGEST_SHOWN - len(note)) // 2
    return text[:side] + note + text[-side:]


def is_logged(level: str, environ: Mapping[str, str]) -> bool:
    """Whether lines of a level are asked for. The core refuses what is no level."""
    wanted = environ.get("HOROVOD_LOG_LEVEL", "").lower() or "warning"
    return wanted in _LEVELS and _LEVELS.index(level) >= _LEVELS.index(wanted)


def warn(rank: int, text: str) -> None:
    """A warning of ``rank`` by the logger "horovod", which the program may have set up."""
    import logging  # late: most starts have nothing to warn of

    logging.getLogger("horovod").warning("[%d] warning: %s", rank, text)


def log(level: str, rank: int, text: str) -> None:
    """Writes one line to stderr, unless the level is below the one that is set (warning)."""
    if not is_logged(level, os.environ):
        return
    from .variables import flag  # late: it shows names as this module does

    stamp = ""
    if not flag("HOROVOD_LOG_HIDE_TIME"):
        now = time.time_ns() // 1000
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now // 10**6)) + f".{now % 10**6:06} "
    with contextlib.suppress(OSError):  # closed, or full: no reason not to start
        os.write(2, f"{stamp}[{rank}] {level}: {text}\n".encode(errors="backslashreplace"))
