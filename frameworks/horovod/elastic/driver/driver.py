"""The elastic driver: hears what happens to workers and hosts, and decides which workers there are and which
of them make the next generation.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .causes import HOPELESS, fail_soon, failures, first_status, nobody_left, outcome
from .decisions import Attempt, Decision, End, Form, GiveUp, Kill, Limits, Notify, Start
from .listing import Listing
from .numbering import number
from .progress import Progress
from .reliability import Reliability
from .workers import State, Worker, chosen, missing, sides

_NEVER = float("inf")
_KILLED_STATUS = 128 + 9  # by SIGKILL, as a shell reports it
GATHERING_SECONDS = 5.0
"""A newcomer that is ready waits so long for others that are on their way: the job grows once, not often."""
UNKILLABLE_SECONDS = 10.0
"""A worker that has not ended so long after it was killed waits for a device or a disk, perhaps for ever."""


@dataclass
class Driver:
    """Call ``on_...`` for what happens, then carry out what ``decide`` returns, and again at ``next_time``.

    Every time is that of one monotonic clock, in seconds.
    """

    limits: Limits
    began: float
    reliability: Reliability = field(default_factory=Reliability)
    generation: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    _workers: dict[int, Worker] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _started: int = 0
    _has_finished: bool = False  # a worker has done its work
    _has_state: bool = False  # a worker has told that it holds the state of the training
    _is_durable: bool = False  # new workers find it on disk
    _cut_off: set[int] = field(default_factory=set)  # newcomers that do not reach who has it
    _progress: Progress = field(default_factory=Progress)
    _end: End | None = None
    _bug: Attempt | None = None
    _notified: tuple[bool, bool] = (False, False)  # of this generation: (added, removed)
    _idle_since: float | None = None  # since then not every member trains

    def __post_init__(self) -> None:
        self._listing = Listing(self.reliability.pause_of_returns)
        self._idle_since, self._is_durable = self.began, self.limits.is_durable

    @property
    def members(self) -> list[Worker]:
        """Who is in the current generation, as far as anybody knows."""
        return self._in(State.MEMBER)

    def on_hosts(self, slots: Mapping[str, int], now: float) -> dict[str, float]:
        """How many ranks each host may run. Returns for how many seconds those that flap are left alone."""
        return self._listing.see(slots, {each.host for each in self._live}, now)

    def on_waiting(self, worker: int, now: float, commits: int = 0) -> None:
        """A worker asks for a place in the next generation; it knows of so many commits."""
        found = self._workers.get(worker)
        if found is None or found.state is State.WAITING:
            return
        self._progress.on_commits(commits)
        self._on_idle(found, now)
        found.state, found.since = State.WAITING, now

    def on_holding(self, worker: int, is_durable: bool = False) -> None:
        """A worker holds the state of the training: it has synchronized with the others. ``is_durable``: it
        writes it to disk, too.
        """
        found = self._workers.get(worker)
        if found is not None:
            found.holds = self._has_state = True
            self._is_durable |= is_durable

    def _on_idle(self, worker: Worker, now: float) -> None:
        """It trains no more, or has not trained."""
        if worker.state is State.MEMBER and self._idle_since is None:
            self._idle_since = now
            self._progress.on_end(now)

    @property
    def is_waiting(self) -> bool:
        """Whether not all members train, or there are none, or some have done their work."""
        return self._end is None and (self._idle_since is not None or self._has_finished)

    def on_leaving(self, worker: int, now: float) -> None:
        """A worker ends in good order, as its host was told to: none is started there for a while."""
        found = self._workers.get(worker)
        if found is None:
            return
        self._on_idle(found, now)
        found.state, found.since, found.killed_at = State.LEAVING, now, now
        self.reliability.rest(found.host, now)

    def on_silent(
        self, worker: int, now: float, reason: str = "", observer: int | None = None
    ) -> list[Decision]:
        """The others, or one ``observer``, have given a member up that lives. One that asks for a place
        responds again, until that has led nowhere. Of two that do not reach each other the one goes that has
        not got the state of the training: it is the other one's to give.
        """
        found = self._workers.get(worker)
        if found is None or observer in self._cut_off:
            return []
        other = found if observer is None else self._workers.get(observer, found)
        if found.holds != other.holds:
            return self._cut(*((other, found) if found.holds else (found, other)), now)
        if found.state is not State.MEMBER and not self._progress.is_stuck:
            return []
        reason = reason or "the other ranks have given it up: it does not respond"
        return self.on_stopped(worker, reason, now)

    def on_apart(self, observer: int, absent: Collection[int], now: float) -> list[Decision]:
        """A member did not reach several others as their generation began. Of the two sides the one goes on
        where more have the state of the training, or with the lowest rank; where both have it, that has to
        happen again first.
        """
        members = [each for each in self._live if each.generation == self.generation]
        leaving, staying = sides(members, absent)
        holder = next((each for each in staying if each.holds), None)
        is_early = any(each.holds for each in leaving) and not self._progress.is_stuck
        if holder is None or is_early or observer in self._cut_off:
            return []
        return [kill for each in leaving for kill in self._cut(each, holder, now)]

    def _cut(self, newcomer: Worker, holder: Worker, now: float) -> list[Decision]:
        """Ends a worker that does not reach others who have the state. Each try costs them time: the next one
        on its host, if nobody stays there who has the state, is later.
        """
        gone = [newcomer]
        reason = f"it and rank {holder.rank}, which has the state of the training, do not reach each other"
        if not any(each.holds and each.host == newcomer.host for each in self._live):
            gone = [each for each in self._live if each.host == newcomer.host]
            pause = self.reliability.rest(newcomer.host, now)
            reason += f"; no worker is started on that host for {pause:.0f} s"
        self._cut_off |= {each.number for each in gone}
        return [self._kill(each, reason, now) for each in gone if not each.is_killed]

    def on_stopped(self, worker: int, reason: str, now: float) -> list[Decision]:
        """A worker lives, and does nothing any more."""
        found = self._workers.get(worker)
        return [] if found is None or found.is_killed else [self._kill(found, reason, now)]

    def on_exit(
        self, worker: int, status: int, now: float, is_lost: bool = False, was_asked: bool = False
    ) -> float:
        """A worker has ended; ``is_lost``: its host is out of reach; ``was_asked``: by the signal that asks
        it to leave, before it could say so. Returns for how long the host is set aside.
        """
        found = self._workers.pop(worker, None)
        if found is None or self._end is not None or found.state is State.LEAVING:
            return 0.0
        if status == 0 and not found.is_killed and (found.generation or not self.generation):
            self._has_finished = True
            return 0.0
        self._on_idle(found, now)
        if found.is_killed and found.generation < self.generation:
            return 0.0  # it was one too many
        lived = now - found.since if found.state is State.MEMBER else 0.0
        is_own = status < 128 and not (is_lost or was_asked or found.is_killed)
        what = (worker, found.host, found.rank, found.generation, status, lived)
        self.attempts.append(Attempt(*what, is_own, found.is_killed))
        if self.generation == 0 and is_own:
            self._bug = self._bug or self.attempts[-1]
        if was_asked:
            return self.reliability.rest(found.host, now)
        return self.reliability.failed(found.host, found.began, lived, is_lost, now)

    def decide(self, now: float) -> list[Decision]:
        """What to do now, in this order; each decision is returned once."""
        if self._end is not None:
            return []
        given_up = self._given_up(now)
        self._slots = self._listing.usable(lambda slots: self._has_room(slots, now), now)
        self._wait_for_imports(now)
        self._end = self._verdict(now)
        if self._end is not None:
            return [*given_up, self._end]
        decisions = [*given_up, *self._starts(now), *self._forms(now)]
        self._end = self._end or self._too_few(now)
        if self._end is not None:
            return [*given_up, self._end]
        return [*decisions, *self._kills(now), *self._notices(now)]

    def next_time(self, now: float) -> float:
        """When to ask again although nothing has happened (infinity: never)."""
        if self._end is not None:
            return _NEVER
        times = [self.reliability.next_time(now), self._listing.next_time(now)]
        if self._idle_since is not None:
            times.append(self._idle_since + self.limits.patience)
        times += [worker.since + GATHERING_SECONDS for worker in self._in(State.WAITING)]
        times += [worker.killed_at + self.limits.grace for worker in self._workers.values()]
        times += [worker.shot_at + UNKILLABLE_SECONDS for worker in self._workers.values()]
        return min((time for time in times if time > now), default=_NEVER)

    def _in(self, state: State) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.state is state]

    @property
    def _waiting(self) -> list[Worker]:
        return [worker for worker in self._in(State.WAITING) if not worker.is_killed]

    @property
    def _live(self) -> list[Worker]:
        """Those that are not being ended."""
        return [worker for worker in self._workers.values() if not worker.is_killed]

    @property
    def _most(self) -> int:
        return sum(self._slots.values()) if self.limits.most is None else self.limits.most

    @property
    def _fewest(self) -> int:
        return self.limits.fewest if self.generation else self.limits.ranks

    def _has_room(self, slots: Mapping[str, int], now: float) -> bool:
        return sum(self.reliability.usable(slots, now).values()) >= self._fewest

    def _verdict(self, now: float) -> End | None:
        holders = [worker for worker in self._workers.values() if self._may_hold(worker)]
        if self._has_finished:
            left = [each for each in self._workers.values() if each.generation or not self.generation]
            if all(worker.is_killed for worker in left):
                return outcome(self.attempts, self.generation)
            if not self.generation and self._in(State.WAITING):
                return End(
                    1, "a worker ended with exit status 0 and without hvd.init(), where others wait for it"
                )
        if self._bug is not None:
            return End(self._bug.status, "a worker failed before the training began")
        if self.generation > 0 and not holders and not self._is_durable:
            return End(self._last_status, nobody_left(self._has_state))
        if (
            self.generation > 0
            and not holders
            and not self._has_state
            and fail_soon(self.attempts, self.generation)
        ):
            return End(self._last_status, "the workers have failed by themselves as the training began")
        if self.generation > 0 and not holders and fail_soon(self.attempts, self.generation, HOPELESS):
            return End(
                self._last_status, "the workers have failed by themselves again, soon after they went on"
            )
        return None

    def _may_hold(self, worker: Worker) -> bool:
        """Whether it has the state of the training, as far as anybody knows: who trains may not have told it
        yet, and before anybody has told it, any member may have it.
        """
        is_unsure = worker.state is State.MEMBER or not self._has_state
        return worker.holds or (worker.generation > 0 and is_unsure)

    def _too_few(self, now: float) -> End | None:
        if not self._is_overdue(now):
            return None
        if self._in(State.WAITING) and not all(worker.is_killed for worker in self.members):
            return None  # ``_kills`` ends the members: the others may go on
        count = len(self._in(State.WAITING))
        text = (
            f"for {self.limits.patience:g} s there were too few workers: {count} of at least {self._fewest}"
        )
        return End(self._last_status, text)

    def _is_overdue(self, now: float) -> bool:
        return self._idle_since is not None and now >= self._idle_since + self.limits.patience

    @property
    def _last_status(self) -> int:
        return first_status(self.attempts)

    def _starts(self, now: float) -> list[Decision]:
        if self._has_finished:
            return []
        usable = self.reliability.usable(self._slots, now)
        decisions: list[Decision] = []
        for host in missing(self._live, usable, self._slots, self._most, self.limits.spares):
            self._workers[self._started] = Worker(self._started, host, now, began=now)
            decisions.append(Start(self._started, host))
            self._started += 1
        return decisions

    def _forms(self, now: float) -> list[Decision]:
        if self.members:
            return []
        taken = self._with_state(chosen(self._waiting, self._slots, self._most))
        if (
            self._has_finished
            and 0 < len(taken) < self.limits.fewest
            and not failures(self.attempts, self.generation)
        ):
            left = f"and of those who still trained {len(taken)} of at least {self.limits.fewest} are left"
            self._end = End(1, f"a worker has ended with exit status 0, {left}")
        if self._end is not None or not self._may_form(taken, now):
            return []
        if self.limits.resets is not None and self.generation > self.limits.resets:
            self._end = End(self._last_status, f"more than --reset-limit {self.limits.resets} resets")
            return []
        has_survivors = any(worker.generation == self.generation > 0 for worker in taken)
        if self._progress.on_form(now, has_survivors, any(self._notified)):
            self._end = End(self._last_status, self._progress.reason)
            return []
        self.generation += 1
        members = number([worker.candidate() for worker in taken])
        for member in members:
            worker = self._workers[member.worker]
            worker.state, worker.since, worker.generation = State.MEMBER, now, self.generation
            worker.rank, worker.local_rank = member.rank, member.local_rank
        self._notified, self._idle_since = (False, False), None
        return [Form(self.generation, tuple(members))]

    def _with_state(self, taken: list[Worker]) -> list[Worker]:
        """``taken``, and for one generation a worker whose host is to be left, if nobody else could give the
        others the state of the training.
        """
        holders = [worker for worker in self._waiting if self._may_hold(worker)]
        if not taken or not holders or any(map(self._may_hold, taken)):
            return taken
        return [min(holders, key=lambda each: each.order), *taken]

    def _may_form(self, taken: list[Worker], now: float) -> bool:
        if self._has_finished:  # those who are left may finish, too
            return bool(taken) and any(worker.generation for worker in taken)
        # Who has the state goes on at once. Without it, nothing is lost by waiting for the others.
        is_whole = any(map(self._may_hold, taken)) or self._has_gathered(now)
        return is_whole and len(taken) >= self._fewest

    def _kills(self, now: float) -> list[Decision]:
        """Workers for whom there is no room, and members that keep the others waiting."""
        decisions = [
            self._kill(worker, f"it has not ended within {self.limits.grace:g} s", now)
            for worker in self._workers.values()
            if now >= worker.killed_at + self.limits.grace
        ]
        if self.members or self._idle_since is None:
            decisions += [
                self._ask_to_end(each, "there is no room for it any more", now) for each in self._surplus()
            ]
        if self._is_overdue(now) and (late := [each for each in self.members if not each.is_killed]):
            reason = f"it has kept the others waiting for {self.limits.patience:g} s"
            decisions += [self._kill(worker, reason, now) for worker in late]
            self._idle_since = now  # until they are gone the others have to wait
        return decisions

    def _ask_to_end(self, worker: Worker, reason: str, now: float) -> Decision:
        worker.is_killed, worker.killed_at = True, now
        return Kill(worker.number, False, reason)

    def _kill(self, worker: Worker, reason: str, now: float) -> Decision:
        worker.is_killed, worker.killed_at, worker.shot_at = True, _NEVER, now
        return Kill(worker.number, True, reason)

    def _given_up(self, now: float) -> list[Decision]:
        """Workers that do not end although they were killed. Their hosts get no new ones for a while."""
        found = [each for each in self._workers.values() if now >= each.shot_at + UNKILLABLE_SECONDS]
        for worker in found:
            self.on_exit(worker.number, _KILLED_STATUS, now)
            self.reliability.rest(worker.host, now)
        return [GiveUp(worker.number) for worker in found]

    def _wait_for_imports(self, now: float) -> None:
        """Before the first generation, patience is for workers that are there: how long the imports of a
        program take, nobody knows.
        """
        if self.generation == 0 and not self._in(State.WAITING) and self._live:
            self._idle_since = now

    def _surplus(self) -> list[Worker]:
        """Who is no member, and neither has room nor is a spare."""
        regular = {worker.number for worker in chosen(self._live, self._slots, self._most)}
        stays = (State.MEMBER, State.LEAVING)
        others = [each for each in self._live if each.number not in regular and each.state not in stays]
        others.sort(key=lambda each: each.order)
        spares = [worker for worker in others if worker.host in self._slots][: self.limits.spares]
        return [worker for worker in others if worker not in spares]

    def _notices(self, now: float) -> list[Decision]:
        members = self.members
        if not members or self._has_finished or self._idle_since is not None:
            return []
        room = chosen([*members, *self._waiting], self._slots, self._most)
        added = len(room) > len(members) and self._has_gathered(now)
        removed = any(worker not in room for worker in members)
        before = self._notified
        self._notified = (added or before[0], removed or before[1])
        if self._notified == before:
            return []
        return [Notify(added, removed)]

    def _has_gathered(self, now: float) -> bool:
        """Whether newcomers need not wait for others."""
        coming = [worker for worker in self._in(State.STARTING) if not worker.is_killed]
        longest = max((now - worker.since for worker in self._in(State.WAITING)), default=0.0)
        return not coming or longest >= GATHERING_SECONDS
