"""Every option of horovodrun, once: flags, what it takes, the variable that carries it to the ranks."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


def integer(text: str) -> int:
    """A whole number, at least 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _whole(text: str) -> str:
    return str(integer(text))


def _megabytes(text: str) -> str:
    return str(integer(text) << 20)


def _number(text: str) -> str:
    value = float(text)
    if not 0 <= value < 1e12:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return f"{value:g}"


def _share(text: str) -> str:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return f"{value:g}"


_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


def _level(text: str) -> str:
    if text.upper() not in _LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_LEVELS)}")
    return text.lower()


# How the value is written in --help, and how it is read.
_Value = tuple[str, Callable[[str], str]]
_COUNT: _Value = ("N", _whole)
_SECONDS: _Value = ("S", _whole)


@dataclass(frozen=True)
class Tunable:
    """An option that becomes a variable of the ranks: a value, or a constant for a switch."""

    flag: str
    variable: str
    takes: _Value | str
    help: str


_TUNABLES = {
    "tuneable parameters": (
        Tunable(
            "--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", ("MB", _megabytes), "most reduced at once"
        ),
        Tunable(
            "--cycle-time-ms", "HOROVOD_CYCLE_TIME", ("MS", _number), "silence that closes a batch, at most"
        ),
        Tunable("--cache-capacity", "HOROVOD_CACHE_CAPACITY", _COUNT, "tensors remembered (0: none)"),
    ),
    "autotune": (
        Tunable("--autotune", "HOROVOD_AUTOTUNE", "1", "tune how tensors travel while the program runs"),
        Tunable("--no-autotune", "HOROVOD_AUTOTUNE", "0", "do not (default)"),
        Tunable(
            "--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", ("FILE", str), "write each sample to FILE (CSV)"
        ),
        Tunable(
            "--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", _COUNT, "samples dropped first"
        ),
        Tunable(
            "--autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", _COUNT, "steps of a sample"
        ),
        Tunable(
            "--autotune-bayes-opt-max-samples",
            "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
            _COUNT,
            "samples of the search",
        ),
        Tunable(
            "--autotune-gaussian-process-noise",
            "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
            ("SHARE", _share),
            "how noisy samples are taken to be, from 0 to 1",
        ),
    ),
    "timeline": (
        Tunable(
            "--timeline-filename",
            "HOROVOD_TIMELINE",
            ("FILE", str),
            "write a trace (Chrome JSON) to FILE; with {rank} in it, one per rank",
        ),
        Tunable("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1", "mark the cycles in it"),
        Tunable("--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "do not (default)"),
    ),
    "stall check": (
        Tunable(
            "--stall-check",
            "HOROVOD_STALL_CHECK_DISABLE",
            "0",
            "report what some ranks never submit (default)",
        ),
        Tunable("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1", "do not"),
        Tunable(
            "--stall-check-warning-time-seconds",
            "HOROVOD_STALL_CHECK_TIME_SECONDS",
            _SECONDS,
            "time to the report",
        ),
        Tunable(
            "--stall-check-shutdown-time-seconds",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
            _SECONDS,
            "time to the end of the job",
        ),
        Tunable(
            "--hang-timeout",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
            _SECONDS,
            "the same: end the job, and name the rank, when an operation has waited for it so long",
        ),
    ),
    "logging": (
        Tunable("--log-level", "HOROVOD_LOG_LEVEL", ("LEVEL", _level), f"one of {', '.join(_LEVELS)}"),
    ),
}


def add_general(parser: argparse.ArgumentParser) -> None:
    """Options that concern the launcher itself."""
    add = parser.add_argument
    add("-v", "--version", action="store_true", help="print the version")
    add("-cb", "--check-build", action="store_true", help="print what this installation can do")
    add("--json", action="store_true", help="with --check-build: as one JSON object")
    add("-np", "--num-proc", type=integer, metavar="N", help="how many ranks to start")
    add("-H", "--hosts", metavar="HOST:SLOTS", help="where, and how many at most (localhost:N)")
    add("--start-timeout", type=integer, metavar="S", help="seconds the ranks have to find each other (30)")
    add("--output-filename", metavar="DIR", help="write output to DIR/rank.<rank>/stdout and stderr, too")
    timestamp = "put the time in front of each line"
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help=timestamp)
    add("--verbose", action="store_true", help="say what is started")


class _Unavailable(argparse.Action):
    """An option of Horovod 0.28 that this version does not have: says so instead of misreading it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        flags = "/".join(self.option_strings)
        parser.error(
            f"{flags} is not available in this version, which starts ranks on this host only: leave it out"
        )


_UNAVAILABLE = {
    0: (
        ["--mpi"],
        ["--jsrun"],
        ["--tcp"],
        ["--hierarchical-allreduce"],
        ["--hierarchical-allgather"],
        ["--torus-allreduce"],
    ),
    1: (
        ["-p", "--ssh-port"],
        ["-i", "--ssh-identity-file"],
        ["-hostfile", "--hostfile"],
        ["--host-discovery-script"],
        ["--network-interfaces"],
        ["--network-interface"],
        ["--config-file"],
        ["--min-np", "--min-num-proc"],
        ["--max-np", "--max-num-proc"],
        ["--slots-per-host"],
        ["--reset-limit"],
        ["--elastic-timeout"],
        ["--mpi-args"],
        ["--binding-args"],
        ["--thread-affinity"],
        ["--num-nccl-streams"],
    ),
}


def add_compatible(parser: argparse.ArgumentParser) -> None:
    """Options of Horovod 0.28 beside those above: without effect, or refused by name."""
    for flag in ("--gloo", "--disable-cache"):  # what they ask for is so anyway
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    for values, rows in _UNAVAILABLE.items():
        for flags in rows:
            parser.add_argument(
                *flags,
                action=_Unavailable,
                nargs=values,
                dest="unavailable",
                default=None,
                help=argparse.SUPPRESS,
            )


def add_tunables(parser: argparse.ArgumentParser) -> None:
    """Options that the ranks read from their environment."""
    for title, tunables in _TUNABLES.items():
        add = parser.add_argument_group(title).add_argument
        for item in tunables:
            if isinstance(item.takes, str):
                add(item.flag, dest=item.variable, action="store_const", const=item.takes, help=item.help)
            else:
                metavar, read = item.takes
                add(item.flag, dest=item.variable, type=read, metavar=metavar, help=item.help)
        if title == "timeline":
            merge = "start nothing: make one trace, OUT, of those of several ranks, which follow"
            add("--merge-timelines", metavar="OUT", help=merge)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the given options set for the ranks."""
    variables = {item.variable for tunables in _TUNABLES.values() for item in tunables}
    values = {name: getattr(arguments, name) for name in sorted(variables)}
    if arguments.start_timeout is not None:
        values["HOROVOD_START_TIMEOUT"] = str(arguments.start_timeout)
    return {name: value for name, value in values.items() if value is not None}
