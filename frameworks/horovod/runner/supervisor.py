"""Watches the ranks of one host: output, ends, signals, all in one loop that only waits for events."""

import os
import selectors
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from horovod.bootstrap.verdicts import Verdict

from . import guard, post_mortem
from .arbitration import arbitrate
from .ending import ENDING_SIGNALS, Ending, Exit
from .guardian import Guardian
from .rank_output import RankStream
from .report import Failure, failure_report
from .signals import STOP_SIGNALS, SignalQueue
from .sink import Sink

_LINGER_SECONDS = 0.3
_STRAY_TERM_SECONDS = 0.5
_STRAY_KILL_SECONDS = 1.0
_STRAY_POLL_SECONDS = 0.01
_LAST_OUTPUT_SECONDS = 1.0
_READER_SECONDS = 2.0
_VERDICT_SECONDS = 1.0
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)


@dataclass
class Rank:
    """A process that was started as the leader of its own session and process group."""

    number: int
    pid: int
    stdout: RankStream
    stderr: RankStream
    is_alive: bool = True


class Testimony(Protocol):
    """What connects the launcher with the ranks' own knowledge; see StoreServer."""

    def ranks_ended(self, ranks: Collection[int]) -> None:
        """Tells those who wait for one of ``ranks`` that it has ended."""

    def verdicts(self, ended: Collection[int], seconds: float) -> list[Verdict]:
        """What the ranks hold for the cause; waits for the last words of those in ``ended``."""


class Supervisor:
    """Runs until every rank has ended and nothing that they started is left."""

    def __init__(
        self,
        ranks: Sequence[Rank],
        signals: SignalQueue,
        sinks: Sequence[Sink],
        guardian: Guardian,
        testimony: Testimony,
    ) -> None:
        self._ranks = {rank.pid: rank for rank in ranks}
        self._signals = signals
        self._sinks = sinks
        self._guardian = guardian
        self._testimony = testimony
        self._memory_kills = post_mortem.MemoryKills()
        self._ending = Ending()
        self._stopped: list[int] = []
        self._is_draining = False
        self._abandons_output = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.descriptor, selectors.EVENT_READ, None)
        self._streams = [stream for rank in ranks for stream in (rank.stdout, rank.stderr)]
        self._paused: list[RankStream] = []
        for stream in self._streams:
            self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def run(self) -> int:
        """The status of the job."""
        self._reap()
        while any(rank.is_alive for rank in self._ranks.values()):
            for number in self._ending.due(time.monotonic()):
                self._broadcast(number)
            self._step(self._ending.next_time())
        self._end_strays()
        return self._drain()

    def _step(self, until: float) -> None:
        """Waits for events, at most until ``until``, and handles them."""
        until = min([until, *(stream.progress_time() for stream in self._streams)])
        timeout = None if until == float("inf") else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._on_signals(self._signals.take())
            else:
                self._on_output(key.data)
        now = time.monotonic()
        for stream in self._streams:
            stream.show_progress(now)

    def _on_output(self, stream: RankStream) -> None:
        descriptor = stream.descriptor
        if descriptor < 0:
            return
        if stream.sink.is_full:
            self._selector.unregister(descriptor)
            self._paused.append(stream)
            if not stream.sink.is_full:  # it emptied in between, and its wake-up may have been taken already
                self._signals.wake()
            return
        if not stream.read():
            self._selector.unregister(descriptor)
            stream.close()

    def _resume(self) -> None:
        ready = [stream for stream in self._paused if not stream.sink.is_full]
        for stream in ready:
            self._paused.remove(stream)
            self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def _on_signals(self, numbers: Sequence[int]) -> None:
        self._reap()
        self._resume()
        for number in numbers:
            if number in STOP_SIGNALS:
                self._pause_or_continue(number)
            elif number in _FORWARDED:
                self._broadcast(number)
            else:
                self._abandons_output |= self._is_draining and number in ENDING_SIGNALS
                self._end_on(number)

    def _end_on(self, number: int) -> None:
        ended_already = self._ending.ended_by is not None
        self._ending.on_signal(number, time.monotonic())
        if self._ending.ended_by == number and not ended_already:
            name = signal.Signals(number).name
            self._sinks[1].put(f"horovodrun: {name}: ending all ranks (a second one: at once)\n".encode())

    def _pause_or_continue(self, number: int) -> None:
        """A terminal's stop signal does nothing in a session of its own; SIGSTOP works everywhere."""
        if number == signal.SIGTSTP:
            self._broadcast(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            self._broadcast(signal.SIGCONT)

    def _broadcast(self, number: int) -> None:
        for rank in self._ranks.values():
            if rank.is_alive:
                _signal_group(rank.pid, number)
                if number in (signal.SIGINT, signal.SIGTERM):
                    _signal_group(rank.pid, signal.SIGCONT)

    def _reap(self) -> None:
        """Takes all children that have ended: ranks, and orphans of ranks, which the launcher inherits."""
        exits = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            rank = self._ranks.get(pid)
            if rank is not None and rank.is_alive:
                rank.is_alive = False
                self._guardian.forget(pid)
                exits.append(Exit(rank.number, os.waitstatus_to_exitcode(status)))
        # Any other status ends the job anyhow.
        self._testimony.ranks_ended([exit.rank for exit in exits if exit.code == 0])
        had_failed = self._ending.first_failure is not None
        self._ending.on_exits(exits, time.monotonic())
        if self._ending.first_failure is not None and not had_failed:
            stopped = guard.stopped_processes()
            self._stopped = [rank.number for rank in self._ranks.values() if rank.pid in stopped]

    def _strays(self) -> set[int]:
        return guard.descendants(os.getpid()) - {self._guardian.pid}

    def _end_strays(self) -> None:
        """Ends what the ranks have left behind, daemons included; the launcher is their subreaper."""
        begin = time.monotonic()
        has_asked = False
        while strays := self._strays():
            elapsed = time.monotonic() - begin
            if elapsed > _LINGER_SECONDS + _STRAY_TERM_SECONDS + _STRAY_KILL_SECONDS:
                self._abandons_output = True  # what cannot be killed may hold the pipes open for ever
                return
            if elapsed > _LINGER_SECONDS + _STRAY_TERM_SECONDS:
                guard.signal_all(strays, signal.SIGKILL)
            elif elapsed > _LINGER_SECONDS and not has_asked:
                guard.signal_all(strays, signal.SIGTERM)
                guard.signal_all(strays, signal.SIGCONT)
                has_asked = True
            self._step(time.monotonic() + _STRAY_POLL_SECONDS)

    def _drain(self) -> int:
        """Shows the output to its end and the report; returns the status.

        A reader may be as slow as it likes while the job is well. After a failure it may not stop reading for
        long, and after a signal everything ends soon.
        """
        self._is_draining = True
        end = time.monotonic() + _LAST_OUTPUT_SECONDS if self._ending.ended_by is not None else float("inf")
        patience = float("inf") if self._ending.status == 0 else _READER_SECONDS
        self._attend(lambda: any(stream.descriptor >= 0 for stream in self._streams), end, patience)
        for stream in self._streams:
            stream.discard()
        status = self._report()
        self._attend(lambda: not all(sink.is_idle for sink in self._sinks), end, patience)
        if not self._sinks[0].is_idle and patience < end:
            self._sinks[1].put(
                b"horovodrun: warning: nobody reads stdout: at least %d bytes of output are lost\n"
                % self._sinks[0].queued
            )
        # What is said last reaches its reader even when another output is stuck.
        self._attend(lambda: not self._sinks[1].is_idle, time.monotonic() + _LAST_OUTPUT_SECONDS, patience)
        return status

    def _attend(self, is_wanted: Callable[[], bool], end: float, patience: float) -> None:
        """Handles events while ``is_wanted()``, until ``end`` at most; not while nobody has read any output
        for ``patience`` seconds.
        """
        written, since = -1, 0.0
        while is_wanted() and not self._abandons_output:
            now = time.monotonic()
            total = sum(sink.written for sink in self._sinks)
            if total != written:
                written, since = total, now
            until = min(end, since + patience)
            if now >= until:
                return
            self._step(until)

    def _report(self) -> int:
        """Says why the job failed, if it did, and returns its status."""
        failed = self._ending.first_failure
        if failed is None:
            return self._ending.status
        verdicts = self._testimony.verdicts([rank.number for rank in self._ranks.values()], _VERDICT_SECONDS)
        cause = arbitrate(failed, self._ending.own_exits, verdicts)
        by_number = {rank.number: rank for rank in self._ranks.values()}
        failures = [failed, *self._ending.later_failures]
        later = [exit.rank for exit in failures if exit.rank != cause.rank]
        pids = {number: rank.pid for number, rank in by_number.items()}
        shown = by_number[failed.rank if cause.rank is None else cause.rank]
        failure = Failure(cause, pids, later, self._stopped)
        if cause.exit is not None:
            killer = post_mortem.killer(cause.exit, self._memory_kills)
            notes = post_mortem.notes(cause.exit)
            if hint := post_mortem.hint(shown.number, shown.stderr.tail.text()):
                notes.append(hint)
            failure = replace(failure, notes=notes, killer=killer)
        self._sinks[1].put(failure_report(failure, shown.stdout.tail, shown.stderr.tail))
        return cause.status


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass
