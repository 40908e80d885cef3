"""The options that the ranks read from their environment: a table of flags, values, variables and help."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import values

# How the value is written in --help, and how it is read.
_Value = tuple[str, Callable[[str], str]]
_COUNT: _Value = ("N", values.whole)
_SECONDS: _Value = ("S", values.whole)
_INTERFACES: _Value = ("NAMES", values.interfaces)


@dataclass(frozen=True)
class Tunable:
    """An option that becomes a variable of the ranks: a value, or a constant for a switch."""

    flag: str
    variable: str
    takes: _Value | str
    help: str
    adds: bool = False  # each further use adds to a list


_STALL = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
TUNABLES = {
    "how tensors travel": (
        Tunable(
            "--fusion-threshold-mb",
            "HOROVOD_FUSION_THRESHOLD",
            ("MB", values.megabytes),
            "reduce at most MB MiB of tensors in one operation (0: each tensor alone)",
        ),
        Tunable(
            "--cycle-time-ms",
            "HOROVOD_CYCLE_TIME",
            ("MS", values.number),
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
            ("CORES", values.cores),
            "pin the background thread of each local rank, for example to 0,2,4",
        ),
    ),
    "the network between hosts": (
        Tunable(
            "--network-interfaces",
            "HOROVOD_NETWORK_INTERFACES",
            _INTERFACES,
            "let ranks of different hosts meet on these interfaces only, such as eth0,eth1",
        ),
        Tunable(
            "--network-interface",
            "HOROVOD_NETWORK_INTERFACES",
            _INTERFACES,
            argparse.SUPPRESS,
            adds=True,
        ),
        Tunable(
            "--port-range",
            "HOROVOD_PORT_RANGE",
            ("FIRST-LAST", values.port_range),
            "listen on ports of this range only, such as 20000-20999",
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
            ("SHARE", values.share),
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
    "MPI": (
        Tunable(
            "--mpi-threads-disable",
            "HOROVOD_MPI_THREADS_DISABLE",
            "1",
            "where tensors travel by MPI: call it from one thread at a time",
        ),
        Tunable(
            "--no-mpi-threads-disable",
            "HOROVOD_MPI_THREADS_DISABLE",
            "0",
            "call it from one thread for each process set (default)",
        ),
    ),
    "Gloo": (
        Tunable(
            "--gloo-timeout-seconds",
            "HOROVOD_GLOO_TIMEOUT_SECONDS",
            _SECONDS,
            "where tensors travel by Gloo: wait at most S seconds for other ranks (30)",
        ),
    ),
    "logging": (
        Tunable(
            "--log-level",
            "HOROVOD_LOG_LEVEL",
            ("LEVEL", values.level),
            f"what the ranks tell, one of {', '.join(values.LEVELS)}",
        ),
        Tunable("--log-with-timestamp", _HIDE_TIME, "0", "log the time, too (default)"),
        Tunable("--log-without-timestamp", _HIDE_TIME, "1", "log no time"),
        Tunable("--log-hide-timestamp", _HIDE_TIME, "1", argparse.SUPPRESS),
        Tunable("--no-log-hide-timestamp", _HIDE_TIME, "0", argparse.SUPPRESS),
    ),
}


class _Append(argparse.Action):
    """Adds the value to a list with commas."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{before},{values}" if isinstance(before, str) else values)


def add_tunables(parser: argparse.ArgumentParser) -> None:
    """Options that the ranks read from their environment."""
    for title, tunables in TUNABLES.items():
        add = parser.add_argument_group(title).add_argument
        for item in tunables:
            if isinstance(item.takes, str):
                add(item.flag, dest=item.variable, action="store_const", const=item.takes, help=item.help)
            else:
                metavar, read = item.takes
                action = _Append if item.adds else "store"
                add(
                    item.flag,
                    dest=item.variable,
                    action=action,
                    type=read,
                    metavar=metavar,
                    help=item.help,
                )
        if title == "timeline":
            merge = "start nothing: write one trace, OUT, from those of several ranks, which follow"
            add("--merge-timelines", metavar="OUT", help=merge)
