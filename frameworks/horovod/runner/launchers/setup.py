"""What every way to start ranks stands on: checks, files for the output, sinks and the loop."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from horovod.bootstrap import descriptors
from horovod.bootstrap.paths import absolute
from horovod.bootstrap.text import escaped

from .. import limits
from ..file_writer import FileWriter
from ..files import open_file_in, open_folder
from ..job import Job, Output
from ..journal import Journal
from ..nodes.children import Children
from ..nodes.loop import Loop
from ..nodes.rank_process import CommandError, runnable
from ..nodes.reach import ReachError
from ..output import Display
from ..progress import serving
from ..progress.view import View
from ..rank_output import FILES_OF_A_RANK, open_files, outputs_of
from ..signals import SignalQueue, stay_in_foreground
from ..sink import Sink
from ..supervisor import Supervisor, Testimony
from . import is_this_host

USAGE_STATUS = 2
_FLUSH_SECONDS = 1.0
_READER_SECONDS = 5.0

Opened = Sequence[Mapping[str, BinaryIO]]


@dataclass(frozen=True)
class Stage:
    """What a job runs on. ``sinks`` are those of stdout and stderr; what is to be closed after the job goes
    onto ``stack``, and what is to be said at its end to ``notes``. ``view`` is what the ranks tell of how
    far they are.
    """

    loop: Loop
    sinks: Sequence[Sink]
    files: FileWriter
    journal: Journal
    stack: contextlib.ExitStack
    view: View
    notes: list[str] = field(default_factory=list)


Supervise = Callable[[Job, Stage], int]
"""Starts the ranks, and runs the job to its end."""


def launch(job: Job, supervise: Supervise) -> int:
    """Runs a job and returns its status."""
    descriptors.open_standard_streams()
    load, wdir = _load(job), job.work.wdir
    is_here = wdir is None or os.path.isdir(wdir)
    if load.ranks and not is_here:
        complain(f"--wdir {wdir}: there is no such folder on this host")
        return USAGE_STATUS
    try:  # where the folder is on other hosts only, they say it
        if is_here:
            command = runnable(job.work.command, wdir or "", job.variables.get("PATH"))
            job = replace(job, work=replace(job.work, command=command))
    except CommandError as error:
        complain(str(error))
        return error.status
    limits.make_room(load)
    refusal = limits.refusal(load)
    if refusal is not None:
        complain(refusal)
        return USAGE_STATUS
    opened: Opened = [{} for _ in range(job.size)]
    if job.output.folder:
        try:
            opened = open_files(absolute(job.output.folder), job.size)
        except OSError as error:
            complain(f"--output-filename: {error}")
            return USAGE_STATUS
    return _launch(job, opened, supervise)


def _load(job: Job) -> limits.Load:
    """By numbers alone: nothing is allocated for ranks that may be too many."""
    left, own, hosts = job.size, 0, 0
    for host in job.hosts:
        count = min(host.slots, left)
        left -= count
        if is_this_host(host.name):
            own += count
        elif count:
            hosts += 1
    files = (FILES_OF_A_RANK if job.output.folder else 0) + bool(job.output.metrics)
    return limits.Load(own, job.size - own, hosts, files)


def supervisor(
    job: Job, stage: Stage, hosts: Sequence[str], testimony: Testimony, may_restart: bool = False
) -> Supervisor:
    """Of ranks that are the same from the start of a job to its end; ``hosts`` are theirs."""
    output, stdin_rank = job.output, job.work.stdin_rank
    display = Display(output.has_time, output.ranks, stdin_rank, output.has_prefix)
    return Supervisor(
        stage.loop,
        stage.sinks,
        outputs_of(job.size, stage.sinks, display, stage.files.of_ranks, stage.journal),
        hosts,
        testimony,
        output.is_verbose,
        None if job.call is None else job.call.on_failure,
        job.ending(),
        stage.journal,
        reads_terminal=stdin_rank is not None,
        may_restart=may_restart,
    )


def tell(job: Job, stage: Stage, what: Callable[[], str]) -> None:
    """Says what is started to those who look on or have asked for more."""
    if job.output.is_verbose or stage.sinks[1].is_terminal:
        stage.sinks[1].say(what())


def complain(message: str) -> None:
    """Says why there will be no job."""
    print(f"horovodrun: error: {escaped(message)}", file=sys.stderr)


def _launch(job: Job, opened: Opened, supervise: Supervise) -> int:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        signals = SignalQueue()
        stack.callback(signals.close)
        if job.work.stdin_rank is not None:
            stay_in_foreground()
        sinks = [Sink(1, signals.wake)]
        sinks.append(sinks[0] if _are_same(1, 2) else Sink(2, signals.wake))
        sinks[0].on_loss = lambda reason: _tell_loss(sinks[1], "stdout", reason)
        for sink in sinks:
            stack.callback(sink.close)
        files = FileWriter(opened, signals.wake, sinks[1])
        stack.callback(files.close)
        try:
            journal = _journal(job.output, sinks, signals, stack)
        except OSError as error:
            complain(f"--events {job.output.events}: {error}")
            return USAGE_STATUS
        try:
            for text in job.warnings:
                sinks[1].say(f"warning: {escaped(text)}")
            loop = Loop(signals, Children())
            stack.callback(loop.close)
            journal.view = view = View()
            _let_see(job.output, view, loop, sinks, stack)
            stage = Stage(loop, sinks, files, journal, stack, view)
            status = supervise(job, stage)
            _tell_end(journal, status)
            if (job.output.is_verbose or sinks[1].is_terminal) and not job.output.is_json:
                _close(job, time.monotonic() - begin, status, stage.notes, sinks[1])
            return status
        except ReachError as error:
            return _give_up(journal, str(error), error.status)
        except ValueError as error:  # of interfaces and ports, and of what an MPI launcher cannot do
            return _give_up(journal, str(error), USAGE_STATUS)
        except OSError as error:  # a limit on processes or descriptors, mostly
            behind = limits.limit_behind(error, _load(job))
            return _give_up(journal, f"cannot start {job.size} ranks: {error}{behind}", 1)


def _let_see(
    output: Output, view: View, loop: Loop, sinks: Sequence[Sink], stack: contextlib.ExitStack
) -> None:
    """Lets ``horovodrun top`` and those that --metrics names see how far the job is."""
    with contextlib.suppress(OSError):  # a job that nobody can look at is as good
        serving.open_for_top(loop, view, stack)
    if output.metrics:
        from ..progress import metrics  # only for those who need it: a job starts quickly

        metrics.tell(output.metrics, view, loop, sinks[1].say, stack)


def _close(job: Job, seconds: float, status: int, notes: Sequence[str], sink: Sink) -> None:
    """The last line of a job, for people: how long it took, and where its files are. Nobody may read it."""
    what = [f"status {status}"] if status else []
    what += [f"{job.size} rank{'s' if job.size > 1 else ''}", _duration(seconds), *notes]
    what += [f"output in {job.output.folder}"] if job.output.folder else []
    sink.say(escaped(", ".join(what)), owner=sink)
    sink.flush(_READER_SECONDS)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    if minutes == 0:
        return f"{seconds:.1f} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _give_up(journal: Journal, text: str, status: int) -> int:
    """Says to people and programs why there is no job."""
    for line in text.splitlines():
        complain(line)
        journal.message(line.encode(errors="replace"))
    _tell_end(journal, status)
    return status


def _tell_end(journal: Journal, status: int) -> None:
    """To programs, unless the supervisor has told it."""
    if not journal.has_ended:
        journal.end(status)
        journal.flush(_FLUSH_SECONDS)


def _journal(
    output: Output, sinks: Sequence[Sink], signals: SignalQueue, stack: contextlib.ExitStack
) -> Journal:
    """What gets the events; with it, the launcher's own words are events, too."""
    if output.is_json:
        journal = Journal(sinks[0], is_alone=True)
    elif output.events is not None:
        path = Path(absolute(output.events))
        folder = open_folder(path.parent)
        stack.callback(os.close, folder)
        file = open_file_in(folder, path.name)
        stack.callback(file.close)
        sink = Sink(file.fileno(), signals.wake)
        sink.on_loss = lambda reason: _tell_loss(sinks[1], str(path), reason)
        stack.callback(sink.close)
        journal = Journal(sink)
    else:
        return Journal()
    for sink in sinks:
        sink.takes_message = journal.message
    return journal


def _tell_loss(sink: Sink, name: str, reason: str) -> None:
    """To people even where the launcher's words are events, which may be what is lost."""
    sink.say(f"warning: {escaped(name)}: {reason}; the rest of the output is lost", owner=sink)


def _are_same(one: int, other: int) -> bool:
    """Whether two descriptors lead to one file, pipe or terminal, where their lines could mix."""
    return os.path.samestat(os.fstat(one), os.fstat(other))
