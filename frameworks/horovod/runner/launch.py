"""Entry point of the console script ``horovodrun``. What a launch needs is imported for a launch only."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .call.call import Call

_INTERRUPTED_STATUS = 128 + 2  # SIGINT, as a shell reports it
_BROKEN_PIPE_STATUS = 128 + 13  # SIGPIPE, as a shell reports it
_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what is written to such a file


def parse_args(argv: Sequence[str] | None = None) -> "argparse.Namespace":
    """Parses ``argv`` (default: the arguments of this program)."""
    from .command_line import parser  # late: who interrupts an import from here gets no traceback

    return parser.parse(sys.argv[1:] if argv is None else argv)


def check_build(verbose: bool = False) -> None:
    """Prints what this installation can do; ``verbose`` adds where the parts lie."""
    from .build_report import describe

    print(describe(verbose))


def run_commandline() -> None:
    """Runs horovodrun and exits with its status."""
    with _printing():
        if sys.argv[1:2] == ["history"]:
            from .history import command

            sys.exit(command.run(sys.argv[2:]))
        if sys.argv[1:2] == ["top"]:
            from .progress import top

            sys.exit(top.run(sys.argv[2:]))
        if sys.argv[1:2] in (["doctor"], ["bench"]):
            from .probes.command import words

            sys.exit(_run(parse_args(words(sys.argv[1], sys.argv[2:])), has_prefix=False))
        sys.exit(_run(parse_args()))


def _run(arguments: "argparse.Namespace", has_prefix: bool = True) -> int:
    if arguments.version:
        from horovod.version import __version__

        print(__version__)
    elif arguments.completion is not None:
        from .command_line import completion

        print(completion.script(arguments.completion))
    elif arguments.check_build:
        from . import build_report

        print(build_report.as_json() if arguments.json else build_report.describe(arguments.verbose))
    elif arguments.print_config:
        from .command_line import origins

        print(origins.describe(arguments))
    elif arguments.merge_timelines is not None:
        from . import timeline

        return timeline.merge_command(arguments.merge_timelines, arguments.command)
    else:
        return start_job(arguments, has_prefix=has_prefix)
    return 0


def start_job(arguments: "argparse.Namespace", call: "Call | None" = None, has_prefix: bool = True) -> int:
    """Starts the ranks, or serves whoever does, and returns the status of the job when it has ended.
    ``call``: what horovod.run needs of the launcher, see call/call.py. ``has_prefix``: see ``job.Output``.
    """
    from .command_line.new_job import new_job

    try:
        leads = arguments.rendezvous is None or _leads(arguments)
        job = new_job(arguments, os.environ, call, has_prefix) if leads else None
    except ValueError as error:
        from .launchers import setup

        setup.complain(str(error))
        return setup.USAGE_STATUS
    if job is None:
        return _serve(arguments)
    if job.launcher is not None:
        from .mpi import launch as mpi

        return mpi.launch(job, job.launcher)
    if job.elastic is not None:
        from .elastic import launch as elastic

        return elastic.launch(job, job.elastic)
    from .launchers import direct

    return direct.launch(job)


def _leads(arguments: "argparse.Namespace") -> bool:
    """Whether this host leads a job of hosts that dial. Raises ValueError where that cannot be known."""
    from . import meeting, timeouts

    seconds = timeouts.start_seconds(_settings(arguments)) or timeouts.JOIN_SECONDS
    meeting.wait_for_name(
        arguments, seconds, lambda text: print(f"horovodrun: {text}", file=sys.stderr, flush=True)
    )
    return meeting.leads(arguments)


def _serve(arguments: "argparse.Namespace") -> int:
    from . import agent, meeting

    place = arguments.node_rank if arguments.node_rank != meeting.AUTO else None
    return agent.join(arguments.rendezvous, None, None, place, settings=_settings(arguments))


def _settings(arguments: "argparse.Namespace") -> dict[str, str]:
    from .command_line import options

    return {**os.environ, **options.environment(arguments)}


@contextlib.contextmanager
def _printing() -> Iterator[None]:
    """Ends quietly when the reader of what is printed has gone, as in ``horovodrun --help | head -1``, and on
    an interrupt that no job catches; with an error when what is printed cannot be kept, as on a full disk.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED_STATUS)
    except OSError as error:
        has_left = isinstance(error, BrokenPipeError)
        if not has_left and error.errno not in _LOST:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the last flush of the interpreter
        sys.exit(_BROKEN_PIPE_STATUS if has_left else f"horovodrun: error: stdout: {error.strerror}")


if __name__ == "__main__":
    run_commandline()
