"""The text of a traceback in which calls within this library are one line; see ``tracebacks``."""

from __future__ import annotations

import itertools
import traceback
from typing import Any

from .tracebacks import VARIABLE, is_ours
from .variables import flag

# What no code here raises on purpose: when the innermost call is one of ours, the fault is, too.
_FAULTS = (AssertionError, AttributeError, LookupError, NameError)


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
