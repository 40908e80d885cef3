"""Decides what becomes of a job: hears of the outputs and the ends of its ranks, wherever they run."""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from horovod.bootstrap.store.verdicts import Kind, Verdict

from . import limits, post_mortem
from .arbitration import Cause, arbitrate
from .ending import SHOW_STACKS, Ending, Exit, signal_name
from .journal import Journal
from .nodes.loop import Loop
from .nodes.node import STREAMS, Node
from .output import emphasized
from .rank_output import RankOutput
from .report import Failure, Process, failure_report
from .signals import STOP_SIGNALS, stay_in_foreground
from .sink import Sink
from .standstill import Standstill, looks_of

_LAST_OUTPUT_SECONDS = 1.0
_READER_SECONDS = 2.0
_VERDICT_SECONDS = 1.0
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
_REFUSED_STATUS = 1
_REFUSED_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
_NEVER = float("inf")


class Testimony(Protocol):
    """What connects the launcher with the ranks' own knowledge; see StoreServer."""

    def ranks_ended(self, ranks: Collection[int]) -> None:
        """Tells those who wait for one of ``ranks`` that it has ended."""

    def verdicts(self, ended: Collection[int], seconds: float) -> list[Verdict]:
        """What the ranks hold for the cause; waits for the last words of those in ``ended``."""

    def late(self) -> Verdict | None:
        """Who has not come through the start of the ranks in time, once, if no rank says it."""

    def remarks(self, size: int) -> list[str]:
        """What is to be said at the end of a job of ``size`` processes that went well."""


class Policy(Protocol):
    """What an elastic job makes of its processes: it starts new ones in place of those that end."""

    @property
    def is_open(self) -> bool:
        """Whether the job goes on although no process runs."""

    def ended(self, exits: Sequence[Exit]) -> None:
        """How processes ended that were seen to end at one moment."""

    def tend(self, now: float) -> float:
        """Carries on what is under way. Returns when to call it at the latest."""

    def stop(self) -> None:
        """The job is being ended, for a reason of its launcher: nothing more is started."""

    def report(self) -> bytes:
        """Why the job failed."""


class Supervisor:
    """Runs a job until every rank has ended and nothing that they started is left.

    It receives the events of all nodes; see ``nodes.node.Events``. In an elastic job, which has a ``policy``,
    "rank" is the number of a process there, and ``hosts`` and ``outputs`` grow with them.
    """

    def __init__(
        self,
        loop: Loop,
        sinks: Sequence[Sink],
        outputs: Mapping[tuple[int, str], RankOutput],
        hosts: Sequence[str],
        testimony: Testimony,
        is_verbose: bool = False,
        on_failure: Callable[[Cause, bytes], None] | None = None,
        ending: Ending | None = None,
        journal: Journal | None = None,
        on_report: Callable[[bytes], None] | None = None,
        reads_terminal: bool = False,
        may_restart: bool = False,
    ) -> None:
        """``on_failure`` gets the cause and the report of a job that fails, ``on_report`` what the policy of
        an elastic job reports; without them, stderr does.
        ``ending`` knows the limits that the user has set; ``journal`` gets all that happens.
        ``reads_terminal``: a rank does. ``may_restart``: others follow when ranks fail, and the job goes on.
        """
        self._loop = loop
        self._sinks = sinks
        self._outputs = outputs
        self._hosts = hosts
        self._testimony = testimony
        self._is_verbose = is_verbose
        self._on_failure = on_failure or self._show_report
        self._on_report = on_report or self._put_report
        self._journal = journal or Journal()
        self._reads_terminal = reads_terminal
        self._may_restart = may_restart
        self._nodes: Sequence[Node] = ()
        self._pids: dict[int, int] = {}
        self._policy: Policy | None = None
        self._alive = set(range(len(hosts)))
        self._ending = ending or Ending()
        self._is_draining = False
        self._continued = 0  # how many SIGCONT are handled
        self._refused_at: float | None = None
        self._abandons_output = False
        self._standstill = Standstill(self.find_stopped, looks_of(os.environ))
        self._own_verdicts: list[Verdict] = []
        loop.on_signal = self._on_signal

    def run(self, nodes: Sequence[Node], policy: Policy | None = None) -> int:
        """The status of the job, whose ranks the nodes have started; or ``policy`` starts them."""
        self._nodes, self._policy = nodes, policy
        while self._alive or (self._policy is not None and self._policy.is_open):
            try:
                self._go_on()
            except OSError as error:
                self._end_on_refusal(error)
        for node in nodes:
            node.finish()
        while not all(node.is_finished for node in nodes):
            self._step(_NEVER)
        return self._drain()

    def _go_on(self) -> None:
        self._end_late_start()
        tend = self._end_stopped if self._policy is None else self._policy.tend
        until = tend(time.monotonic())
        for number in self._ending.due(time.monotonic()):  # after the policy, which may conclude the job
            if number == SHOW_STACKS:
                self._on_timeout()
            else:
                self._broadcast(number)
        self._step(min(until, self._ending.next_time()))

    def started(self, rank: int, pid: int) -> None:
        """A rank runs."""
        self._pids[rank] = pid
        self._alive.add(rank)
        self._journal.started(rank, self._hosts[rank], pid)
        if self._is_verbose and self._policy is None:
            where = "" if len(set(self._hosts)) == 1 else f" on {self._hosts[rank]}"
            self.say(f"rank {rank} of {len(self._hosts)}{where}: pid {pid}")

    def has_room(self, rank: int, stream: str) -> bool:
        """Whether the reader of the output keeps up."""
        output = self._outputs.get((rank, stream))
        return output is None or output.has_room

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """The next bytes of a stream; no bytes: its end."""
        if data:
            self._outputs[rank, stream].feed(data)
        else:
            self._outputs[rank, stream].end()

    def ended(self, exits: Sequence[Exit]) -> None:
        """How ranks ended."""
        self._alive -= {exit.rank for exit in exits}
        self._journal.exits(exits, self._hosts)
        if self._policy is not None:
            self._policy.ended(exits)
            return
        # Any other status ends the job anyhow.
        self._testimony.ranks_ended([exit.rank for exit in exits if exit.code == 0])
        self._plan_end(exits)

    def leave(self, why: str) -> None:
        """Ends the job in good order, as SIGTERM does."""
        self._end_on(signal.SIGTERM, f"{why}: ending all ranks")

    @property
    def is_to_restart(self) -> bool:
        """Whether ranks have failed, others may follow, and nobody has asked for the end of the job."""
        is_over = self._ending.was_asked or self._ending.has_timed_out
        return self._may_restart and self._ending.first_failure is not None and not is_over

    def conclude(self, status: int) -> None:
        """Ends the processes that are left: the job is over, with this status."""
        self._ending.conclude(status, time.monotonic())

    def pid(self, rank: int) -> int | None:
        """None: it has never started."""
        return self._pids.get(rank)

    def find_stopped(self) -> list[int]:
        """Looks which ranks a signal has stopped. Returns those that are known by now."""
        for node in self._nodes:
            node.find_stopped()
        return [rank for node in self._nodes for rank in node.stopped if rank in self._alive]

    def _end_stopped(self, now: float) -> float:
        """Ends a job of which only stopped ranks are left: nobody else waits for them, and says so. Returns
        when to look again.
        """
        if self._ending.is_near or not 0 < len(self._alive) < len(self._hosts):
            return _NEVER
        stopped = sorted(self._standstill.look(now))
        if stopped and set(stopped) == self._alive:
            ranks = f"rank{'s' if len(stopped) > 1 else ''} {', '.join(map(str, stopped))}"
            reason = f"a signal has stopped {ranks}, and all others have ended"
            self._own_verdicts.append(Verdict(stopped[0], Kind.SILENT, stopped[0], reason))
            self._plan_end([Exit(stopped[0], 1, untold=reason)])
        return self._standstill.next_time()

    def _end_late_start(self) -> None:
        late = self._testimony.late()
        if late is not None and self._ending.first_failure is None:
            self._plan_end([Exit(late.observer, 1, untold=late.reason)])

    def _plan_end(self, exits: Sequence[Exit]) -> None:
        had_failed = self._ending.first_failure is not None
        self._ending.on_exits(exits, time.monotonic())
        if self._ending.first_failure is not None and not had_failed:
            for node in self._nodes:
                node.find_stopped()
            self._show_absent()

    def _show_absent(self) -> None:
        """Has a rank that the others have waited for in vain show where it is, while it lives."""
        verdicts = self._testimony.verdicts((), 0.0)
        absent = self._alive.intersection(each.culprit for each in verdicts if each.kind == Kind.ABSENT)
        for node in self._nodes if absent else ():
            node.show_stacks(absent)

    def say(self, text: str) -> None:
        """Writes a line among the launcher's own."""
        self._sinks[1].say(text)

    def _step(self, until: float) -> None:
        """Waits for events, at most until ``until``, and handles them."""
        until = min([until, *(each.progress_time() for each in self._outputs.values())])
        try:
            self._loop.step(until, self._nodes)
        except OSError as error:
            self._end_on_refusal(error)
        now = time.monotonic()
        for output in self._outputs.values():
            output.show_progress(now)

    def _on_signal(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._pause_or_continue(number)
        elif self._ending.takes(number):
            self._abandons_output |= self._is_draining
            self._end_on(number, f"{signal_name(number)}: ending all ranks (a second one: at once)")
        elif number in _FORWARDED:
            self._broadcast(number)

    def _end_on(self, number: int, text: str) -> None:
        ended_already = self._ending.ended_by is not None
        self._ending.on_signal(number, time.monotonic())
        if self._ending.ended_by == number and not ended_already:
            self._journal.signal(number)
            self._stop_policy()
            self.say(text)

    def _end_on_refusal(self, error: OSError) -> None:
        """The system has refused the launcher something that it cannot do without: it ends the job in good
        order. Raises ``error`` when it is refused still after the time that this takes.
        """
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
            self._stop_policy()
            hint = limits.limit_behind(error, limits.Load(len(self._hosts)))
            self.say(f"error: horovodrun cannot go on: {error}{hint}; ending all ranks")
            self._ending.conclude(_REFUSED_STATUS, now)
        elif now > self._refused_at + self._ending.grace + _REFUSED_SECONDS:
            raise error
        else:
            time.sleep(_PAUSE_SECONDS)

    def _stop_policy(self) -> None:
        if self._policy is not None:
            self._policy.stop()

    def _on_timeout(self) -> None:
        self._journal.timeout()
        self._stop_policy()
        self.say("the job has not ended within --timeout: the ranks show where they are, and are then ended")
        for node in self._nodes:
            node.show_stacks()

    def _pause_or_continue(self, number: int) -> None:
        """A terminal's stop signal does nothing in a session of its own; SIGSTOP works everywhere."""
        if number == signal.SIGTSTP:
            self._broadcast(signal.SIGSTOP)
            self._loop.stop(self._continued)
        else:
            self._continued = self._loop.continued
            if self._reads_terminal:
                stay_in_foreground()
            self._broadcast(signal.SIGCONT)

    def _broadcast(self, number: int) -> None:
        for node in self._nodes:
            node.signal(number)

    def _drain(self) -> int:
        """Shows the output to its end and the report; returns the status.

        A reader may be as slow as it likes while the job is well. After a failure it may not stop reading for
        long, and after a signal everything ends soon.
        """
        self._is_draining = True
        end = time.monotonic() + _LAST_OUTPUT_SECONDS if self._ending.ended_by is not None else float("inf")
        patience = float("inf") if self._ending.status == 0 else _READER_SECONDS
        self._attend(lambda: not all(output.is_ended for output in self._outputs.values()), end, patience)
        for output in self._outputs.values():
            output.hide()
        for node in self._nodes:
            node.abandon()
        status = self._report() or self._loss()
        if not self.is_to_restart:
            self._journal.end(status)
        sinks = [*self._sinks, *([] if self._journal.sink is None else [self._journal.sink])]
        self._attend(lambda: not all(sink.is_idle for sink in sinks), end, patience)
        if not self._sinks[0].is_idle and patience < end:
            lost = self._sinks[0].queued
            self.say(f"warning: nobody reads stdout: at least {lost} bytes of output are lost")
        # What is said last reaches its reader even when another output is stuck.
        self._attend(lambda: not self._sinks[1].is_idle, time.monotonic() + _LAST_OUTPUT_SECONDS, patience)
        return status or self._loss()

    def _loss(self) -> int:
        """The status of a job that did well and whose output could not be written, as on a full disk."""
        return int(any(sink.has_lost for sink in self._sinks))

    def _attend(self, is_wanted: Callable[[], bool], end: float, patience: float) -> None:
        """Handles events while ``is_wanted()``, until ``end`` at most; not while nobody has read any output
        for ``patience`` seconds.
        """
        written, since = -1, 0.0
        while is_wanted() and not self._abandons_output:
            now = time.monotonic()
            total = sum(sink.written for sink in self._sinks)
            total += sum(output.kept for output in self._outputs.values())
            if total != written:
                written, since = total, now
            until = min(end, since + patience)
            if now >= until:
                return
            self._step(until)

    def _report(self) -> int:
        """Says why the job failed, if it did, and returns its status."""
        failed = self._ending.first_failure
        if self._policy is not None and self._ending.has_failed and self._refused_at is None:
            self._on_report(self._policy.report())
        if failed is None:
            for line in self._testimony.remarks(len(self._hosts)) if self._ending.status == 0 else ():
                self.say(f"warning: {line}")
            return self._ending.status
        ranks = range(len(self._hosts))
        verdicts = [*self._testimony.verdicts(ranks, _VERDICT_SECONDS), *self._own_verdicts]
        cause = arbitrate(failed, self._ending.own_exits, verdicts)
        failures = [failed, *self._ending.later_failures]
        known = [exit.rank for exit in failures if not (exit.lost or exit.untold)]
        later = [rank for rank in known if rank != cause.rank]
        stopped = [rank for node in self._nodes for rank in node.stopped]
        processes = {rank: Process(self._hosts[rank], self._pids.get(rank)) for rank in ranks}
        shown = failed.rank if cause.rank is None else cause.rank
        stdout, stderr = (self._outputs[shown, name].tail for name in STREAMS)
        notes = [] if cause.exit is None else list(cause.exit.notes)
        if cause.exit is not None and (hint := post_mortem.hint(shown, stderr.text())):
            notes.append(hint)
        # Those that have failed because another one had tell another error, or have told who it was.
        ends = {(exit.code, self._outputs[exit.rank, "stderr"].tail.traceback()) for exit in failures}
        is_alike = cause.exit is not None and len(known) == len(ranks) > 1 and len(ends) == 1 and all(*ends)
        is_alike = is_alike and all(verdict.culprit is None for verdict in verdicts)
        failure = Failure(cause, processes, later, stopped, notes, is_alike)
        report = failure_report(failure, stdout, stderr)
        culprit = Process("", None) if cause.rank is None else processes[cause.rank]
        self._journal.failure(cause, culprit.host or None, culprit.pid, report)
        self._on_failure(cause, report)
        return cause.status

    def _show_report(self, cause: Cause, report: bytes) -> None:
        if not self._journal.is_alone:
            self._put_report(report)

    def _put_report(self, report: bytes) -> None:
        self._sinks[1].put(emphasized(report, self._sinks[1].is_terminal), self)
