"""A worker that is asked to end, by SIGTERM or another signal, ends in good order: at its next commit.

Then all ranks know of it, what was committed is saved, and the others go on without it. It is asked when its
host is about to be taken away, when the whole job is to end, and by the engine when the launcher has died.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from horovod.bootstrap.errors import LauncherEndedError
from horovod.bootstrap.start import elastic_membership
from horovod.elastic.asking import chosen_signal

ASKED_STATUS = 128 + signal.SIGTERM
ORPHAN_STATUS = 75  # EX_TEMPFAIL of sysexits.h: the same job can go on later

# No Event, whose lock a second signal would wait for within the handler of the first.
_is_asked = False
_replaced: dict[int, Any] = {}  # by signal, the handler that was there before
_leaves_at_once = False


class Leaving(SystemExit):
    """This worker ends in good order, because it was asked to."""


@contextmanager
def heard() -> Iterator[None]:
    """Within it, in a worker of an elastic job, SIGTERM asks where the program has no handler of its own for
    it, and the signal that the user has chosen asks in any case: a handler of the program is called, too.

    Raises ValueError for a wrong environment.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if elastic_membership() is None or not is_main or _replaced:  # the last: it is heard already
        yield
        return
    chosen = chosen_signal(os.environ)
    try:
        for number in {signal.SIGTERM, chosen or signal.SIGTERM}:
            before = signal.getsignal(number)
            if number == chosen or before == signal.SIG_DFL:
                _replaced[number] = signal.SIG_DFL if before is None else before
                signal.signal(number, _asks_before(before))
        yield
    finally:
        _put_back()


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, who is asked leaves at once: what this rank has is saved, and it waits for others. So it
    does when there is no launcher any more that would say for whom.
    """
    global _leaves_at_once
    _leaves_at_once = True  # first: a signal may come at any moment
    try:
        if is_asked():
            leave()
        yield
    except LauncherEndedError as error:
        raise Leaving(ORPHAN_STATUS) from error
    finally:
        _leaves_at_once = False


def ask() -> None:
    """What the signal does, where this process hears of it in another way."""
    global _is_asked
    _is_asked = True


def is_asked() -> bool:
    """Whether this worker is to leave."""
    return _is_asked


def leave() -> NoReturn:
    """Ends this worker: with status 143, or 75 where the launcher has died."""
    membership = elastic_membership()
    is_told = membership is not None and membership.leave()
    raise Leaving(ASKED_STATUS if is_told else ORPHAN_STATUS)


def _put_back() -> None:
    """Also in a forked child, which is no worker: it is to end by SIGTERM as ever."""
    while _replaced:
        signal.signal(*_replaced.popitem())


os.register_at_fork(after_in_child=_put_back)


def _asks_before(handler: Any) -> Callable[[int, Any], None]:
    """A handler that asks, and then calls what was there before it."""

    def on_signal(number: int, frame: Any) -> None:
        global _is_asked
        _is_asked = True
        if callable(handler):
            handler(number, frame)
        if _leaves_at_once:
            raise Leaving(ASKED_STATUS)

    return on_signal
