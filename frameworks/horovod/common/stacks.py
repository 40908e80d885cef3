"""Where the Python threads of all ranks are, shown when the engine reports a stall and by ``stacks()``.

The engine never calls into Python, so a thread of this module waits for its request without the interpreter
lock; it costs nothing until then.
"""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from horovod import _core
from horovod.bootstrap.text import escaped

_INNERMOST = 6
_PACKAGE = str(Path(__file__).parents[1])
_THREAD = "hvd-stacks"


def stacks() -> None:
    """Has every rank write the stacks of its Python threads to its standard error.

    Returns at once. A rank whose interpreter is held up by native code answers when it comes back; look at
    that one with ``py-spy dump --native``.
    """
    if not _core.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    _core.show_stacks()


class _Watch:
    thread: threading.Thread | None = None


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
    while _core.await_stacks_request():
        sys.stderr.write(describe(rank, sys._current_frames()))
        sys.stderr.flush()


def describe(rank: int, frames: dict[int, FrameType]) -> str:
    """The innermost calls of each thread, the main thread first, in few lines."""
    names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    lines = [f"Python stacks of rank {rank}, innermost call last:"]
    for ident in sorted(frames, key=lambda ident: ident != main):
        name = names.get(ident, "a thread")
        if name == _THREAD:
            continue
        calls = _until_here(traceback.extract_stack(frames[ident]))[-_INNERMOST:]
        lines.append(f"  {name}:")
        lines += [f"    {call.filename}:{call.lineno} {call.name}: {call.line}" for call in calls]
    return "\n".join(map(escaped, lines)) + "\n"


def _until_here(calls: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The program's own calls, and the one by which it entered this library."""
    inside = (call.filename.startswith(_PACKAGE) for call in calls)
    entered = next((index for index, is_inside in enumerate(inside) if is_inside), len(calls))
    return list(calls)[: entered + 1]
