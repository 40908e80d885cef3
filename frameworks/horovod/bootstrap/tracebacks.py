"""Tracebacks as users see them: calls within this library are folded into one line.

Only the text differs. An exception keeps its whole traceback, for debuggers and for those who catch it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from types import TracebackType

VARIABLE = "HOROVOD_FULL_TRACEBACK"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_ours(filename: str) -> bool:
    """Whether a file is one of this library."""
    return filename.startswith(_PACKAGE)


def is_of_program(filename: str) -> bool:
    """Whether a file is the user's, and of no library."""
    return not (filename.startswith((*_LIBRARIES, _PACKAGE)) or any(part in filename for part in _INSTALLED))


def install() -> None:
    """Folds the tracebacks of uncaught exceptions, unless the program shows them in a way of its own."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _show_of_thread


def formatted(error: BaseException) -> str:
    """The traceback of an exception and of those that led to it, folded."""
    from . import folding  # late: most programs raise nothing

    return folding.formatted(error)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        _write(formatted(error.with_traceback(trace)))
    except Exception:
        sys.__excepthook__(kind, error, trace)
    if issubclass(kind, KeyboardInterrupt):
        _remember_the_interrupt()


def _remember_the_interrupt() -> None:
    """Python ends by SIGINT after an interrupt, as shells and launchers expect, but forgets it as soon as any
    text is run as a program, which the imports of a traceback do; it would end with 1.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _show_of_thread(given: threading.ExceptHookArgs) -> None:
    try:
        if given.exc_value is None or issubclass(given.exc_type, SystemExit):
            return
        name = "a thread" if given.thread is None else given.thread.name
        _write(f"Exception in thread {name}:\n{formatted(given.exc_value)}")
    except Exception:
        threading.__excepthook__(given)


def _write(text: str) -> None:
    sys.stderr.write(text)  # at once: lines of several ranks do not mix
    sys.stderr.flush()
