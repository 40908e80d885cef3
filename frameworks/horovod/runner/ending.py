"""Decides when and how the ranks are ended, and with which status. Pure: events and time in, signals out."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

REPORT_SECONDS = 2.0
GRACE_SECONDS = 5.0
STACKS_SECONDS = 2.0
SHOW_STACKS = 0  # among the signals that are due: the ranks are to show where they are
TIMEOUT_STATUS = 124  # as that of timeout(1)
_ASKED_STATUS = 128 + signal.SIGTERM
_LAST_SECONDS = 1.0
_NEVER = float("inf")

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def signal_name(number: int) -> str:
    """For people and programs; numbers without a name have their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Exit:
    """How a rank ended: ``code`` is its exit status, or minus the signal that killed it.

    ``killer`` is who sent the signal, where that is known; ``notes`` are lines for the report; ``lost`` says
    why nobody knows how the rank ended, when its host is out of reach; ``untold`` says so when whoever
    started the rank does not tell.
    """

    rank: int
    code: int
    killer: str | None = None
    notes: tuple[str, ...] = ()
    lost: str = ""
    untold: str = ""

    @property
    def status(self) -> int:
        """What a shell would report."""
        return self.code if self.code >= 0 else 128 - self.code


class Ending:
    """Collects the exits of one job and plans the signals to those who are left.

    A failed rank leaves the others a moment to report errors of their own; then they get SIGTERM, and
    SIGKILL after the grace time. A signal to the launcher is passed on, with the same grace; a second one
    kills. At the deadline the ranks show their stacks, and are then ended in the same way.

    Args:
        grace: seconds from the first signal to the ranks to the one that kills.
        deadline: when the job ends anyhow, by the clock of all the times here.
        preemption: one more signal that asks for the end as SIGTERM does; it is passed on.
    """

    def __init__(
        self, grace: float = GRACE_SECONDS, deadline: float = _NEVER, preemption: int | None = None
    ) -> None:
        self.first_failure: Exit | None = None
        self.later_failures: list[Exit] = []
        self.own_exits: list[Exit] = []  # those that the launcher did not bring about, in their order
        self.ended_by: int | None = None
        self.was_asked = False  # by a signal to the launcher, also where something else had ended the job
        self.has_timed_out = False
        self._concluded: int | None = None
        self._preemption = signal.SIGTERM if preemption is None else preemption
        self.grace = grace
        self._plan: list[tuple[float, int]] = [] if deadline == _NEVER else [(deadline, SHOW_STACKS)]
        self._has_signalled = False

    @property
    def status(self) -> int:
        """The status of the job."""
        if self.first_failure is not None:
            return self.first_failure.status
        if self.has_timed_out:
            return TIMEOUT_STATUS
        if self._concluded is not None and self.ended_by is None:
            return self._concluded
        if self.ended_by == self._preemption:
            return _ASKED_STATUS
        return 0 if self.ended_by is None else 128 + self.ended_by

    @property
    def is_near(self) -> bool:
        """Whether something has happened already that ends the job."""
        is_told = self.ended_by is not None or self.has_timed_out or self._concluded is not None
        return is_told or self.first_failure is not None

    def takes(self, number: int) -> bool:
        """Whether a signal to the launcher is one that ends the job."""
        return number in ENDING_SIGNALS or number == self._preemption

    @property
    def has_failed(self) -> bool:
        """Whether ``conclude`` has said so."""
        return bool(self._concluded)

    def conclude(self, status: int, now: float) -> None:
        """The job is over, with this status, whatever becomes of the ranks that are left."""
        if self._concluded is None and self.ended_by is None and not self.has_timed_out:
            self._concluded = status
            self._plan = [(now, signal.SIGTERM), (now + self.grace, signal.SIGKILL)]

    def on_exits(self, exits: Sequence[Exit], now: float) -> None:
        """Takes exits seen at one moment: among them, death by signal counts as the earlier."""
        if not self._has_signalled:
            self.own_exits += exits
        failures = sorted((exit for exit in exits if exit.code != 0), key=lambda exit: exit.code > 0)
        is_over = self.ended_by is not None or self.has_timed_out or self._concluded is not None
        if not failures or is_over:
            return
        if self.first_failure is None:
            self.first_failure = failures.pop(0)
            report = now + REPORT_SECONDS
            self._plan = [(report, signal.SIGTERM), (report + self.grace, signal.SIGKILL)]
        if not self._has_signalled:
            self.later_failures += failures

    def on_signal(self, number: int, now: float) -> None:
        """Takes a signal that the launcher got."""
        if not self.takes(number):
            return
        self.was_asked = True
        if self.ended_by is not None or self.first_failure is not None or self.has_timed_out:
            self._plan = [(now, signal.SIGKILL)]
            return
        self.ended_by = number
        grace = now + self.grace
        if number == signal.SIGINT:
            self._plan = [(now, number), (grace, signal.SIGTERM), (grace + _LAST_SECONDS, signal.SIGKILL)]
        else:
            self._plan = [(now, number), (grace, signal.SIGKILL)]

    def due(self, now: float) -> list[int]:
        """The signals to send now; each is returned once."""
        ready = [number for time, number in self._plan if time <= now]
        self._plan = [(time, number) for time, number in self._plan if time > now]
        self._has_signalled = self._has_signalled or bool(ready)
        if SHOW_STACKS in ready:
            self.has_timed_out = True
            end = now + STACKS_SECONDS
            self._plan = [(end, signal.SIGTERM), (end + self.grace, signal.SIGKILL)]
        return ready

    def next_time(self) -> float:
        """When ``due`` has the next one (infinity: never)."""
        return self._plan[0][0] if self._plan else _NEVER
