"""Every option of horovodrun, once: flags, what it takes, the variable that carries it to the ranks."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

AUTO = "auto"


def integer(text: str) -> int:
    """A whole number, at least 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def rank_count(text: str) -> int | str:
    """A number of ranks, or "auto"."""
    return AUTO if text == AUTO else integer(text)


def rank_list(text: str) -> list[int]:
    """Ranks and ranges of them, such as 0,4-7."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks, such as 0 or 0,4-7")
        begin, end = int(first), int(last or first)
        if end < begin or end - begin > 1 << 20:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of ranks, such as 4-7")
        ranks.update(range(begin, end + 1))
    return sorted(ranks)


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


def _cores(text: str) -> str:
    if not all(part.isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of cores, such as 0,2,4")
    return text


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


_STALL = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
_TUNABLES = {
    "how tensors travel": (
        Tunable(
            "--fusion-threshold-mb",
            "HOROVOD_FUSION_THRESHOLD",
            ("MB", _megabytes),
            "reduce at most MB MiB of tensors in one operation (0: each tensor alone)",
        ),
        Tunable(
            "--cycle-time-ms",
            "HOROVOD_CYCLE_TIME",
            ("MS", _number),
            "wait at most MS milliseconds for more tensors",
        ),
        Tunable(
            "--cache-capacity",
            "HOROVOD_CACHE_CAPACITY",
            _COUNT,
            "remember the descriptions of N operations (0: none)",
        ),
        Tunable(
            "--thread-affinity",
            "HOROVOD_THREAD_AFFINITY",
            ("CORES", _cores),
            "pin the background thread of each local rank, for example to 0,2,4",
        ),
    ),
    "autotune": (
        Tunable("--autotune", "HOROVOD_AUTOTUNE", "1", "find the fastest settings while the program runs"),
        Tunable("--no-autotune", "HOROVOD_AUTOTUNE", "0", "keep the settings as they are (default)"),
        Tunable(
            "--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", ("FILE", str), "write each sample to FILE (CSV)"
        ),
        Tunable(
            "--autotune-warmup-samples",
            "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
            _COUNT,
            "drop the first N samples (3)",
        ),
        Tunable(
            "--autotune-steps-per-sample",
            "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
            _COUNT,
            "measure N steps for each sample (10)",
        ),
        Tunable(
            "--autotune-bayes-opt-max-samples",
            "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
            _COUNT,
            "search with N samples (20)",
        ),
        Tunable(
            "--autotune-gaussian-process-noise",
            "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
            ("SHARE", _share),
            "how noisy samples are, from 0 (not at all) to 1 (0.8)",
        ),
    ),
    "timeline": (
        Tunable(
            "--timeline-filename",
            "HOROVOD_TIMELINE",
            ("FILE", str),
            "write a trace (Chrome JSON) to FILE; with {rank} in the name, one for each rank",
        ),
        Tunable("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1", "mark each batch in it"),
        Tunable("--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "mark none (default)"),
    ),
    "stall check": (
        Tunable(
            "--stall-check",
            "HOROVOD_STALL_CHECK_DISABLE",
            "0",
            "report operations that some ranks never submit (default)",
        ),
        Tunable("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1", "report no such operations"),
        Tunable(
            "--stall-check-warning-time-seconds",
            "HOROVOD_STALL_CHECK_TIME_SECONDS",
            _SECONDS,
            "report after S seconds (10)",
        ),
        Tunable(
            "--stall-check-shutdown-time-seconds",
            _STALL,
            _SECONDS,
            "end the job after S seconds, and name the rank (0: never)",
        ),
        Tunable("--hang-timeout", _STALL, _SECONDS, "short for the option above"),
    ),
    "logging": (
        Tunable(
            "--log-level",
            "HOROVOD_LOG_LEVEL",
            ("LEVEL", _level),
            f"what the ranks tell, one of {', '.join(_LEVELS)}",
        ),
        Tunable("--log-with-timestamp", _HIDE_TIME, "0", "log the time, too (default)"),
        Tunable("--log-without-timestamp", _HIDE_TIME, "1", "log no time"),
        Tunable("--log-hide-timestamp", _HIDE_TIME, "1", argparse.SUPPRESS),
        Tunable("--no-log-hide-timestamp", _HIDE_TIME, "0", argparse.SUPPRESS),
    ),
}


def add_general(parser: argparse.ArgumentParser) -> None:
    """Options that concern the launcher itself."""
    add = parser.add_argument
    ranks = "how many ranks to start; auto starts one for each core, or for each slot of -H"
    add("-np", "-n", "--num-proc", type=rank_count, metavar="N", help=ranks)
    add("-H", "--hosts", metavar="HOST:SLOTS", help="where to start them, and how many at most (localhost:N)")
    add(
        "-hostfile",
        "--hostfile",
        metavar="FILE",
        help='the same, as lines of FILE such as "localhost slots=4"',
    )
    nodes = "use the first N hosts; -np ranks are dealt to them evenly"
    add("--nnodes", type=integer, metavar="N", help=nodes)
    add("--nproc-per-node", type=integer, metavar="N", help="how many ranks to run on each host")
    add("--start-timeout", type=integer, metavar="S", help="give the ranks S seconds to find each other (30)")
    add("--config-file", metavar="FILE", help="read options from FILE (YAML); those given here come first")
    add("--verbose", action="store_true", help="say what is started")
    add("-v", "--version", action="store_true", help="print the version")
    add("-cb", "--check-build", action="store_true", help="print what this installation can do")
    add("--json", action="store_true", help="with --check-build: print it as JSON")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Options for what the ranks write and read."""
    add = parser.add_argument_group("output and input of the ranks").add_argument
    add("--ranks", type=rank_list, metavar="LIST", help="show the output of these ranks only, such as 0,4-7")
    add("--output-filename", metavar="DIR", help="keep the output in DIR/rank.<rank>/stdout and stderr, too")
    timestamp = "put the time in front of each line"
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help=timestamp)
    stdin = "let rank N read your terminal, for breakpoint(); the others read nothing"
    add("--stdin-rank", type=integer, metavar="N", help=stdin)


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
            merge = "start nothing: write one trace, OUT, from those of several ranks, which follow"
            add("--merge-timelines", metavar="OUT", help=merge)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the given options set for the ranks."""
    variables = {item.variable for tunables in _TUNABLES.values() for item in tunables}
    values = {name: getattr(arguments, name) for name in sorted(variables)}
    if arguments.start_timeout is not None:
        values["HOROVOD_START_TIMEOUT"] = str(arguments.start_timeout)
    return {name: value for name, value in values.items() if value is not None}
