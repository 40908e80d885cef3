"""Carries out the decisions of the elastic driver, and tells it what happens; see ``supervisor.Policy``."""

import signal
import time
from collections.abc import Sequence

from horovod.bootstrap.text import escaped
from horovod.elastic.driver.decisions import Attempt, Decision, End, Form, GiveUp, Kill, Notify, Start
from horovod.elastic.driver.driver import Driver
from horovod.elastic.driver.numbering import Member

from ..ending import Exit, signal_name
from ..journal import Journal
from ..nodes.notice import Notice
from ..standstill import Standstill
from ..supervisor import Supervisor
from .chaos import Chaos
from .crew import Crew
from .discovery import HostDiscovery
from .formation import Formation
from .roster import Roster

_ATTEMPTS_SHOWN = 4
_LINES = 12  # of a report
_PASSING = 128
_UNSTARTED_STATUS = 75  # EX_TEMPFAIL of sysexits.h: the same job can go on later


class ElasticPolicy:
    """One job's. ``notice`` is that of this host, with which the launcher goes. Workers of a host that is
    about to go have ``grace`` seconds. ``preemption``: a signal that asks a worker to end, beside SIGTERM.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        driver: Driver,
        roster: Roster,
        crew: Crew,
        discovery: HostDiscovery,
        journal: Journal,
        notice: Notice,
        grace: float,
        chaos: Chaos | None = None,
        preemption: int | None = None,
    ) -> None:
        self._notice = notice
        self._grace = grace
        self._asking = {_PASSING + signal.SIGTERM, _PASSING + (preemption or signal.SIGTERM)}
        self._chaos = chaos
        self._driver = driver
        self._roster = roster
        self._crew = crew
        self._discovery = discovery
        self._supervisor = supervisor
        self._say = supervisor.say
        self._standstill = Standstill(supervisor.find_stopped)
        self._journal = journal
        self._formation = Formation(roster, self._on_begin, self._say)
        self._going: dict[str, float] = {}  # hosts that are about to go: when their workers are killed
        self._flapping: set[str] = set()  # hosts of which it has said that they come and go
        self._places: dict[int, Member] = {}  # by worker, of the last generation that it was in
        self._generations: dict[int, int] = {}  # the number of that
        self._hosts: dict[int, str] = {}
        self._end: End | None = None
        self._is_stopped = False
        self._signalled: set[int] = set()  # workers whose end the launcher has brought about
        self._leavers: set[int] = set()
        self._finishers: list[int] = []  # workers that have done their work
        self._told: set[int] = set()  # those of whom it has said so

    @property
    def is_open(self) -> bool:
        """Whether the job goes on although no worker runs."""
        return self._end is None and not self._is_stopped

    def ended(self, exits: Sequence[Exit]) -> None:
        """How workers ended."""
        if not (exits and self.is_open):
            return
        now = time.monotonic()
        self._take_waiting(now)
        self._formation.ended(exit.rank for exit in exits)
        self._roster.lost([exit.rank for exit in exits if exit.lost])
        for exit in sorted(exits, key=lambda each: each.code > 0):  # a death by signal is the earlier
            if exit.code == 0 and exit.rank not in self._leavers | self._told:
                self._finishers.append(exit.rank)
            was_asked = exit.status in self._asking and exit.rank not in self._signalled
            pause = self._driver.on_exit(exit.rank, exit.status, now, bool(exit.lost), was_asked)
            self._tell_exit(exit, pause)
            self._crew.ended(exit.rank)
        self._act(now)

    def tend(self, now: float) -> float:
        """Hears the workers and the discovery, and acts on it."""
        if self.is_open and self._notice.look(now):
            self._supervisor.leave(f"{self._notice.path}: this host is about to go")
        if not self.is_open:
            return float("inf")
        if self._discovery.tend(now) is not None:
            self._use_hosts()
        self.ended(self._crew.take_failed(now))
        self._take_waiting(now)
        self._end_stuck(now)
        self._formation.tend(now)
        self._act(now)
        times = [
            self._look_for_stopped(now),
            self._driver.next_time(now),
            self._crew.next_time(),
            self._discovery.next_time(),
            self._roster.next_time(),
            self._formation.next_time(),
            self._notice.next_time(),
            *self._going.values(),
        ]
        if self._chaos is not None:
            self._hit(self._chaos, now)
            times.append(self._chaos.next_time())
        return min(times)

    def noticed(self, host: str, is_given: bool) -> None:
        """A host is about to go, or is not any more: it is used as if it was not among the hosts."""
        if is_given == (host in self._going):
            return
        if is_given:
            self._going[host] = time.monotonic() + self._grace
            self._say(f"{escaped(host)} is about to go: its workers leave")
        else:
            del self._going[host]
            self._say(f"{escaped(host)} may be used again")
        self._use_hosts()

    def _use_hosts(self) -> None:
        slots = {name: count for name, count in self._discovery.hosts.items() if name not in self._going}
        for host, pause in self._driver.on_hosts(slots, time.monotonic()).items():
            if host not in self._flapping:
                self._flapping.add(host)
                self._say(
                    f"{escaped(host)} goes and comes back: it is used again when it has stayed for "
                    f"{pause:.0f} s, and the next time for longer"
                )

    def _end_stuck(self, now: float) -> None:
        """Workers that keep others waiting, or that have not left a host that is about to go."""
        for worker, observer in self._roster.silent():
            self._carry_out(self._driver.on_silent(worker, now, observer=observer), now)
        for worker, absent in self._roster.apart():
            self._carry_out(self._driver.on_apart(worker, absent, now), now)
        for worker in self._roster.overdue(now):
            reason = "it has not come through the start, and nobody says why"
            self._carry_out(self._driver.on_silent(worker, now, reason), now)
        for host in [name for name, deadline in self._going.items() if now >= deadline]:
            self._going[host] = float("inf")
            reason = f"its host is about to go, and it has not ended within {self._grace:g} s"
            for worker in [each for each, where in self._hosts.items() if where == host]:
                self._carry_out(self._driver.on_stopped(worker, reason, now), now)

    def stop(self) -> None:
        """Nothing more is started."""
        self._is_stopped = True
        self._crew.stop()

    def ranks(self) -> dict[int, int]:
        """Of the workers that have done their work: by their ranks, the later generation behind."""
        last = {worker: place.rank for worker, place in self._places.items()}
        order = sorted(
            self._finishers, key=lambda each: (self._generations.get(each, 0), last.get(each, each), each)
        )
        return {worker: rank for rank, worker in enumerate(order)}

    def culprit(self) -> dict[int, int]:
        """The worker that failed last, and the rank that it had, where the job has failed."""
        attempts = self._driver.attempts
        if not attempts or self._end is None or self._end.status == 0:
            return {}
        return {attempts[-1].worker: attempts[-1].rank or 0}

    def report(self) -> bytes:
        """Why the job failed: the reason, the last workers that failed, and what one of them wrote."""
        assert self._end is not None
        lines = [f"{self._end.reason}; the job's status is {self._end.status}"]
        attempts = self._driver.attempts[-_ATTEMPTS_SHOWN:]
        if len(attempts) < len(self._driver.attempts):
            lines.append(f"{len(self._driver.attempts)} workers failed, the last of them:")
        lines += [_attempt(each) for each in attempts]
        if attempts:
            # A worker that ended by itself says more than one that was killed.
            own = [each for each in attempts if each.status < _PASSING] or attempts
            lines += self._crew.evidence(own[0].worker, _LINES - len(lines) - 1)
        return "".join(f"horovodrun: {line}\n" for line in lines).encode(errors="replace")

    def _look_for_stopped(self, now: float) -> float:
        """While ranks wait for workers, a stopped one among these is ended soon. Ranks that train notice it
        themselves. Returns when to look again.
        """
        if not (self._driver.is_waiting or self._roster.is_starting):
            self._standstill.forget()
            return float("inf")
        for worker in self._standstill.look(now):
            reason = "a signal has stopped it, and the job waits for it"
            self._carry_out(self._driver.on_stopped(worker, reason, now), now)
        self._act(now)
        return self._standstill.next_time()

    def _hit(self, chaos: Chaos, now: float) -> None:
        """Brings about the fault that the user has asked for."""
        ranks = {worker.rank: worker.number for worker in self._driver.members if worker.rank is not None}
        holders = [worker.rank for worker in self._driver.members if worker.holds and worker.rank is not None]
        rank = chaos.choose(ranks.keys() if holders else [], now, holders)
        if rank is not None:
            self._say(f"--chaos: {signal.Signals(chaos.number).name} to rank {rank}")
            self._signal(ranks[rank], chaos.number)
        self._excuse(chaos)

    def _excuse(self, chaos: Chaos, is_over: bool = False) -> None:
        if excuse := chaos.excuse(is_over):
            self._say(f"--chaos does nothing: {excuse}")
        elif is_over and chaos.hits:
            self._say(f"--chaos: {chaos.hits} fault{'s' if chaos.hits > 1 else ''} in all")

    def _signal(self, worker: int, number: int) -> None:
        if number != signal.SIGSTOP:
            self._signalled.add(worker)
        self._crew.signal(worker, number)

    def _take_waiting(self, now: float) -> None:
        for worker, is_durable in self._roster.take_holding():
            self._driver.on_holding(worker, is_durable)
        for worker in self._roster.take_leaving():
            self._say(f"{self._who(worker)} leaves the job, as it was asked to")
            self._driver.on_leaving(worker, now)
            self._leavers.add(worker)
        for worker, commits in self._roster.take_waiting():
            self._driver.on_waiting(worker, now, commits)

    def _act(self, now: float) -> None:
        self._carry_out(self._driver.decide(now), now)

    def _carry_out(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self._hosts[decision.worker] = decision.host
                self._crew.start(decision.worker, decision.host)
            elif isinstance(decision, Form):
                self._tell_cause(decision.generation - 1)
                self._formation.begin(decision, now)
            elif isinstance(decision, Notify):
                self._roster.notify(decision.added, decision.removed)
            elif isinstance(decision, Kill):
                self._say(f"{self._who(decision.worker)} is ended: {decision.reason}")
                self._told.add(decision.worker)
                number = signal.SIGKILL if decision.is_silent else signal.SIGTERM
                self._signal(decision.worker, number)
            elif isinstance(decision, GiveUp):
                who = self._who(decision.worker)
                self._say(f"{who} does not end although it was killed; the job goes on without it")
                self._formation.ended([decision.worker])
            elif isinstance(decision, End):
                self._finish(decision)
        if self._formation.failure and self._end is None:
            self._finish(End(_UNSTARTED_STATUS, self._formation.failure))

    def _tell_cause(self, generation: int) -> None:
        """Of the end of a generation in which no worker has ended: its ranks say nothing, and go on."""
        has_lost = any(each.generation == generation for each in self._driver.attempts)
        if not has_lost and (cause := self._roster.cause()):
            self._say(f"generation {generation} has ended: {escaped(cause)}")

    def _finish(self, end: End) -> None:
        self._end = end
        if self._chaos is not None:
            self._excuse(self._chaos, is_over=True)
        self._crew.stop()
        self._supervisor.conclude(end.status)

    def _on_begin(self, form: Form) -> None:
        before, self._places = self._places, {**self._places, **{each.worker: each for each in form.members}}
        for member in form.members:
            self._generations[member.worker] = form.generation
            self._crew.name(member.worker, member.rank)
        self._journal.generation(
            form.generation, [(each.rank, each.worker, each.host) for each in form.members]
        )
        if form.generation > 1:
            new = [each.rank for each in form.members if each.worker not in before]
            came = f", of which {_ranks(new)} {'is' if len(new) == 1 else 'are'} new" if new else ""
            count = f"{len(form.members)} rank{'s' if len(form.members) > 1 else ''}"
            self._say(f"generation {form.generation}: {count}{came}")

    def _tell_exit(self, exit: Exit, pause: float) -> None:
        if exit.code == 0 or self._end is not None or exit.rank in self._leavers:
            return
        if exit.rank in self._told and not pause:
            return  # that it is ended has been said, and why
        how = f": {exit.lost}" if exit.lost else f" {_how(exit)}"
        aside = f"; no worker is started on that host for {pause:.0f} s" if pause else ""
        is_own = exit.rank in self._signalled
        notes = "" if is_own else "".join(f"; {note}" for note in exit.notes)
        self._say(f"{self._who(exit.rank)}{how}{notes}{aside}")

    def _who(self, worker: int) -> str:
        host = escaped(self._hosts.get(worker, "?"))
        place = self._places.get(worker)
        name = f"worker {worker}" if place is None else f"rank {place.rank}"
        return f"{name} ({host})"


def _how(exit: Exit) -> str:
    if exit.code > 0:
        return f"failed with exit status {exit.code}"
    return f"was killed by {signal_name(-exit.code)}{f' from {exit.killer}' if exit.killer else ''}"


def _attempt(attempt: Attempt) -> str:
    name = f"worker {attempt.worker}" + ("" if attempt.rank is None else f", rank {attempt.rank}")
    status = attempt.status
    how = f"killed by signal {status - _PASSING}" if status > _PASSING else f"exit status {status}"
    lived = f", {attempt.lived:.0f} s after it had joined" if attempt.generation else ", before it joined"
    return f"  {name} on {escaped(attempt.host)}, generation {attempt.generation}: {how}{lived}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"
