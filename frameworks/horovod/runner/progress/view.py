"""What is known of a job while it runs: its ranks say how far they are, and the launcher where they run."""

import collections
import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from horovod.bootstrap.store.messages import PROGRESS
from horovod.bootstrap.store.server import StoreServer

from ..ending import Exit
from ..launchers import is_this_host

if TYPE_CHECKING:
    from horovod.bootstrap.store.reports import Report

_WINDOW = 12  # reports, one a second, over which rates are taken
_SILENT_SECONDS = 5.0  # a rank says nothing, or has not said anything yet


class View:
    """Hears from the journal what the launcher does, on its thread, and from the ranks, on those of stores.

    Processes are numbered by rank, or in an elastic job as workers, whose ranks ``generation`` tells.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._command: list[str] = []
        self._status: int | None = None
        self._generation = 0
        self._ranks: dict[int, int] = {}  # of an elastic job, by worker
        self._processes: dict[int, tuple[str, int]] = {}  # host and pid of all
        self._running: set[int] = set()
        self._reports: dict[int, collections.deque[Report]] = {}
        self._first: dict[int, Report] = {}  # the first with a step, since the process counts as it does
        self._heard: dict[int, float] = {}

    def attach(self, store: StoreServer) -> None:
        """Before a store serves to which ranks report."""
        store.divert(PROGRESS.encode(), self.take)

    def take(self, number: int, _key: bytes, value: bytes) -> str:
        """A report of a process. Returns why it is refused, or ""."""
        from horovod.bootstrap.store.reports import decode  # late, like all that few jobs need

        try:
            report = decode(value)
        except (ValueError, RecursionError):
            return "not a report"
        with self._lock:
            if number not in self._heard:  # what the launcher has seen itself is of no use any more
                self._reports.pop(number, None)
            self._heard[number] = time.monotonic()
            self._add(number, report)
        return ""

    def start(self, command: Iterable[str]) -> None:
        """The job begins."""
        with self._lock:
            self._command = list(command)

    def forget_ranks(self) -> None:
        """All ranks have ended, and others take their places."""
        with self._lock:
            for each in (self._processes, self._running, self._reports, self._first, self._heard):
                each.clear()

    def started(self, number: int, host: str, pid: int) -> None:
        """A process runs."""
        with self._lock:
            self._processes[number] = host, pid
            self._running.add(number)

    def generation(self, number: int, ranks: Iterable[tuple[int, int]]) -> None:
        """An elastic job has these ranks from now on: rank and number of its process."""
        with self._lock:
            self._generation = number
            self._ranks = {worker: rank for rank, worker in ranks}
            for known in (self._processes, self._reports, self._first, self._heard):
                for gone in known.keys() - self._ranks.keys() - self._running:
                    del known[gone]

    def exits(self, exits: Iterable[Exit]) -> None:
        """Processes have ended. When all have, what they said last is where the job is."""
        with self._lock:
            self._running -= {each.rank for each in exits}

    def end(self, status: int) -> None:
        """The job is over."""
        with self._lock:
            self._status = status

    def snapshot(self) -> dict[str, Any]:
        """How far the job is, as JSON may have it. A number that is not known is None."""
        from .summary import of_job

        with self._lock:
            ranks = sorted(map(self._row, self._shown()), key=lambda row: (row["rank"] is None, row["rank"]))
            generation, status, begin = self._generation, self._status, self._begin
            command = self._command
        return {
            "pid": os.getpid(),
            "command": command,
            "seconds": round(time.monotonic() - begin, 3),
            "status": status,
            "generation": generation or None,
            **of_job(ranks),
            "ranks": ranks,
        }

    def _shown(self) -> list[int]:
        return list(self._running) or [
            each for each in self._reports if each in (self._ranks or self._reports)
        ]

    def _row(self, number: int) -> dict[str, Any]:
        from .pace import pace

        host, pid = self._processes.get(number, ("", None))
        age = time.monotonic() - self._heard.get(number, float("-inf"))
        if age > _SILENT_SECONDS and pid is not None and number in self._running and is_this_host(host):
            self._look(number, pid)
        told = pace(self._first.get(number), self._reports.get(number, ()))
        return {
            "rank": self._ranks.get(number) if self._generation else number,
            "host": host,
            "pid": pid,
            **told._asdict(),
            "age": None if age == float("inf") else round(age, 1),
        }

    def _look(self, number: int, pid: int) -> None:
        """At a process of this host that does not report: what the system knows of it."""
        from horovod.bootstrap.store.reports import Report

        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has just ended
            return
        cpu = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        memory = int(fields[21]) * os.sysconf("SC_PAGESIZE")
        known = self._reports.get(number)
        last = known[-1] if known else Report(0, 0, 0.0, None, None, None, 0, 0, 0, 0)
        self._add(number, last._replace(time=time.monotonic(), cpu=cpu, memory=memory))

    def _add(self, number: int, report: "Report") -> None:
        from .pace import is_anew

        known = self._reports.setdefault(number, collections.deque(maxlen=_WINDOW))
        if known and is_anew(known[-1], report):
            known.clear()
            self._first.pop(number, None)
        known.append(report)
        if report.step is not None:
            self._first.setdefault(number, report)
