"""Tracebacks as users see them: calls within this library are folded into one line.

Only the text differs. An exception keeps its whole traceback, for debuggers and for those who catch it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from .variables import flag

VARIABLE = "HOROVOD_FULL_TRACEBACK"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# What no code here raises on purpose: when the innermost call is one of ours, the fault is, too.
_FAULTS = (AssertionError, AttributeError, LookupError, NameError)


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
    shown = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    if not flag(VARIABLE):
        _fold(shown, error)
    return "".join(shown.format())


class _Folded(traceback.StackSummary):
    """Calls whose text has one line for those in a row that are within this library."""

    def format(self, **options: Any) -> list[str]:
        lines: list[str] = []
        for ours, calls in itertools.groupby(self, key=lambda call: is_ours(call.filename)):
            group = list(calls)
            plural = "s" if len(group) > 1 else ""
            note = f"  [{len(group)} call{plural} within horovod; {VARIABLE}=1 shows them]\n"
            lines += [note] if ours else traceback.StackSummary.from_list(group).format(**options)
        return lines


def _fold(shown: traceback.TracebackException, error: BaseException) -> None:
    is_fault = isinstance(error, _FAULTS) and bool(shown.stack) and is_ours(shown.stack[-1].filename)
    if not is_fault:
        shown.stack = _Folded(shown.stack)
    inner = [(shown.__cause__, error.__cause__), (shown.__context__, error.__context__)]
    inner += zip(getattr(shown, "exceptions", None) or (), getattr(error, "exceptions", ()), strict=False)
    for part, its_error in inner:
        if part is not None and its_error is not None:
            _fold(part, its_error)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        _write(formatted(error.with_traceback(trace)))
    except Exception:
        sys.__excepthook__(kind, error, trace)


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
