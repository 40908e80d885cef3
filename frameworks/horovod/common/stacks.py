"""Where the Python threads of all ranks are, shown when the engine reports a stall and by ``stacks()``.

The engine never calls into Python, so a thread of this module waits for its request without the interpreter
lock; it costs nothing until then. While native code holds that lock, the thread cannot answer: then the
engine raises a signal at which faulthandler writes the stacks, which needs no lock.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

from horovod import _core
from horovod.bootstrap.text import escaped
from horovod.bootstrap.tracebacks import is_of_program, is_ours

if TYPE_CHECKING:
    import traceback

_INNERMOST = 6
_THREAD = "hvd-stacks"
_STDERR = 2
_STATUS = "/proc/self/status"


def stacks() -> None:
    """Has every rank write the stacks of its Python threads to its standard error.

    Returns at once. A rank in which native code holds the interpreter lock shows them after a second or two,
    with a hint how to see the native calls.
    """
    _core.show_stacks()  # ValueError before init


class _Watch:
    thread: threading.Thread | None = None
    signal = 0  # faulthandler answers it; 0: none


def show_crashes() -> None:
    """A crash shows the Python stacks; a program that has arranged that itself keeps its own way."""
    if not faulthandler.is_enabled():
        faulthandler.enable(file=_STDERR)


def answer_launcher() -> None:
    """From now on the launcher can have this process show its stacks, also before ``init``."""
    _signal_without_lock()


def watch() -> None:
    """Begins to answer requests."""
    _Watch.thread = threading.Thread(target=_answer, name=_THREAD, daemon=True)
    _Watch.thread.start()


def rest() -> None:
    """After the engine has stopped: the thread is gone before the interpreter may be."""
    if _Watch.thread is not None:
        _Watch.thread.join()
    _Watch.thread = None


def _answer() -> None:
    try:
        rank = _core.topology()[0]
    except ValueError:  # shut down already
        return
    number = _signal_without_lock()
    while _core.await_stacks_request(number):
        # The program may have closed its stderr, or have none.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(describe(rank, _frames()))
            sys.stderr.flush()


def _frames() -> dict[int, FrameType]:
    """By thread, where it is. Without a collection of garbage within: before Python 3.12 one that finds a
    ``threading.local`` waits there for ever, with the interpreter lock (python/cpython#106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _signal_without_lock() -> int:
    """The signal at which faulthandler shows all stacks from now on; 0 when none is free.

    A real-time signal: programs have little use for them. The engine raises it in its own thread, so that no
    call of the program is interrupted.
    """
    if _Watch.signal and signal.getsignal(_Watch.signal) != signal.SIG_DFL:
        _Watch.signal = 0  # the program has taken it meanwhile
    if _Watch.signal == 0:
        mask = _caught_signals()
        free = (
            number for number in range(signal.SIGRTMAX - 8, signal.SIGRTMIN, -1) if not mask >> number - 1 & 1
        )
        _Watch.signal = next(free, 0)
        if _Watch.signal:
            faulthandler.register(_Watch.signal, file=_STDERR, all_threads=True)
    return _Watch.signal


def _caught_signals() -> int:
    """A bit for each signal that has a handler, also one of native code; all, where nobody tells."""
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(_STATUS, encoding="ascii", errors="replace") as file,
    ):
        for line in file:
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16)
    return -1


def describe(rank: int, frames: dict[int, FrameType]) -> str:
    """The innermost calls of each thread and the program's own call, the main thread first, in few lines."""
    import traceback  # late: few jobs stall

    names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    lines = [f"Python stacks of rank {rank}, innermost call last:"]
    for ident in sorted(frames, key=lambda ident: ident != main):
        name = names.get(ident, "a thread")
        if name == _THREAD:
            continue
        calls = _shown(_until_here(traceback.extract_stack(frames[ident])))
        lines.append(f"  {name}:")
        lines += [f"    {call.filename}:{call.lineno} {call.name}: {call.line}" for call in calls]
    return "\n".join(map(escaped, lines)) + "\n"


def _until_here(calls: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The program's own calls, and the one by which it entered this library."""
    inside = (is_ours(call.filename) for call in calls)
    entered = next((index for index, is_inside in enumerate(inside) if is_inside), len(calls))
    return list(calls)[: entered + 1]


def _shown(calls: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The innermost calls; where all of those are of libraries, such as Keras, below the program's own."""
    inner = calls[-_INNERMOST:]
    own = [call for call in calls if is_of_program(call.filename)]
    return inner if any(call in own for call in inner) else own[-1:] + inner
