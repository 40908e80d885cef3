"""Begins the generations that the driver forms, and tries again where the system refuses a store for one."""

from collections.abc import Callable, Iterable

from horovod.elastic.driver.decisions import Form

from .roster import Roster

TRIES_SECONDS = 30.0
"""For so long it is tried again: descriptors may be free soon, and the workers wait anyhow."""
_PAUSE_SECONDS = 1.0
_NEVER = float("inf")


class Formation:
    """One job's. ``on_begin`` gets each generation that has begun; ``say`` gets lines for people."""

    def __init__(self, roster: Roster, on_begin: Callable[[Form], None], say: Callable[[str], None]) -> None:
        self.failure = ""  # why a generation cannot begin, once nothing more is tried
        self._roster = roster
        self._on_begin = on_begin
        self._say = say
        self._pending: Form | None = None
        self._gone: list[int] = []  # workers that have ended since it was formed
        self._next, self._end = _NEVER, _NEVER
        self._has_told = False

    def begin(self, form: Form, now: float) -> None:
        """Tells the members their places, now or as soon as that can be."""
        self._pending, self._gone = form, []
        self._next, self._end, self._has_told = now, now + TRIES_SECONDS, False
        self.tend(now)

    def ended(self, workers: Iterable[int]) -> None:
        """Workers have ended: nobody is to wait for them in a start."""
        gone = list(workers)
        if self._pending is not None:
            self._gone += gone
        self._roster.ended(gone)

    def tend(self, now: float) -> None:
        """Tries again what was refused, at its time."""
        if self._pending is None or now < self._next:
            return
        try:
            self._roster.form(self._pending.generation, self._pending.members)
        except OSError as error:
            self._refused(self._pending, error, now)
            return
        form, self._pending, self._next = self._pending, None, _NEVER
        self._on_begin(form)
        self._roster.ended(self._gone)

    def next_time(self) -> float:
        """When to call ``tend`` (infinity: nothing is to be tried again)."""
        return self._next

    def _refused(self, form: Form, error: OSError, now: float) -> None:
        why = f"generation {form.generation} cannot begin: {error}"
        if not self._has_told:
            self._has_told = True
            self._say(f"warning: {why}; it is tried again for {TRIES_SECONDS:g} s")
        self._next = now + _PAUSE_SECONDS
        if now >= self._end:
            self.failure, self._pending, self._next = why, None, _NEVER
