"""How far this rank is: the program says it, and a thread tells horovodrun once a second.

``horovodrun --metrics`` and ``horovodrun top`` show it; see ``bootstrap.store.reports``.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from typing import TYPE_CHECKING

from horovod import _core

if TYPE_CHECKING:
    from horovod.bootstrap.store.line import Line
    from horovod.bootstrap.store.reports import Report

METRICS_VARIABLE = "HOROVOD_METRICS"
_PERIOD_SECONDS = 1.0
_RANKS_A_SECOND = 500  # that horovodrun hears; of more, each tells less often
_LAST_SECONDS = 1.0  # for the last report, when the rank leaves the job


class _Now:
    """What the program has said."""

    __slots__ = ("apart", "epoch", "samples", "step", "steps", "waited")

    def __init__(self) -> None:
        self.apart = self.waited = 0.0  # see ``waits_apart``; what was reported last
        self.step: int | None = None
        self.steps: int | None = None
        self.epoch: float | None = None
        self.samples: float = 0


_now = _Now()
_lock = threading.Lock()
_teller: _Teller | None = None  # from the first word on, until this process leaves the job


def progress(
    step: int | None = None,
    steps: int | None = None,
    epoch: float | None = None,
    samples: float = 0,
) -> None:
    """Says that this rank has made a step, for ``horovodrun top`` and ``horovodrun --metrics``.

    Call it on every rank after each step, also while nobody looks: it only keeps the numbers. Under another
    launcher than horovodrun, and before ``init``, nobody hears of them.

    Args:
        step: how many steps of the training have been made; None: one more than at the last call.
        steps: how many it has in all, if that is known; it may be said once.
        epoch: which epoch it is in.
        samples: how many samples this rank has gone through in this step.

    Example:
        >>> for step, batch in enumerate(batches, 1):
        ...     train(batch)
        ...     hvd.progress(step, steps=len(batches), samples=len(batch))
    """
    now = _now
    now.step = (now.step or 0) + 1 if step is None else step
    now.samples += samples
    if steps is not None:
        now.steps = steps
    if epoch is not None:
        now.epoch = epoch
    if _teller is None:
        _begin()


def waits_apart(seconds: float) -> None:
    """A thread that serves other ranks has waited so long for their requests, while this rank went on."""
    _now.apart += seconds


def begin() -> None:
    """``hvd.init()`` has joined a job. Without a program that says anything, only --metrics wants reports."""
    _now.apart = _now.waited = 0.0
    if os.environ.get(METRICS_VARIABLE):
        _begin()


def end() -> None:
    """``hvd.shutdown()`` is about to leave it."""
    global _teller
    with _lock:
        teller, _teller = _teller, None
    if teller is not None:
        teller.stop()


def _begin() -> None:
    global _teller
    with _lock:
        if _teller is None and _core.is_initialized():
            _teller = _Teller()


class _Teller:
    """Tells horovodrun of ``_now``, on a thread. Without horovodrun there is none."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if _is_heard():
            self._thread = threading.Thread(target=self._run, name="hvd-progress", daemon=True)
            with contextlib.suppress(RuntimeError):  # the system has no thread for it
                self._thread.start()

    def stop(self) -> None:
        """After a last report, which nobody waits for long."""
        self._stopping.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        from horovod.bootstrap.errors import BootstrapError
        from horovod.bootstrap.store.messages import PROGRESS

        # Progress that nobody can hear of is no reason to disturb a training.
        with contextlib.suppress(BootstrapError, OSError, RuntimeError, ValueError, TypeError):
            line = _line()
            period = max(_PERIOD_SECONDS, _core.topology()[1] / _RANKS_A_SECOND)
            is_last = False
            while not is_last:
                is_last = self._stopping.wait(period)
                line.set(PROGRESS, _report().encode())
            line.close()


def _is_heard() -> bool:
    from horovod.bootstrap import identity, start

    given = identity.from_environment(os.environ)
    return given.launcher == identity.HOROVODRUN and start.communicator() is None


def _line() -> Line:
    from horovod.bootstrap import start
    from horovod.bootstrap.start_settings import host_timeout, start_timeout
    from horovod.bootstrap.store.line import Line

    timeout = start_timeout(os.environ)
    return Line(
        lambda seconds: start.launchers_store(timeout=seconds),
        timeout,
        max(timeout, host_timeout(os.environ)),
    )


def _report() -> Report:
    from horovod.bootstrap import start
    from horovod.bootstrap.store.reports import Report

    membership = start.elastic_membership()
    place = None if membership is None else membership.place
    _now.waited = max(_now.waited, _core.counters()["waited_us"] / 1e6 - _now.apart)
    return Report(
        _core.topology()[0],
        0 if place is None else place.generation,
        time.monotonic(),
        _whole(_now.step),
        _whole(_now.steps),
        _now.epoch if _now.epoch is None or isinstance(_now.epoch, int) else float(_now.epoch),
        float(_now.samples),
        _now.waited,
        time.process_time(),
        _resident_bytes(),
    )


def _whole(number: float | None) -> int | None:
    """None, too, for what is no number, such as the infinite length of a stream of batches."""
    return int(number) if number is not None and math.isfinite(number) else None


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
