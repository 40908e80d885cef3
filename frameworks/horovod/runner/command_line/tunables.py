"""The options that the ranks read from their environment."""

from . import values
from .option import Option, Table, Value

_COUNT: Value = ("N", values.whole)
_SECONDS: Value = ("S", values.whole)
_INTERFACES: Value = ("NAMES", values.interfaces)

_STALL = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"

_Flag = tuple[str, str | None, str]
"""What one types, what --help says of it, and the value of the variable."""


def _switch(variable: str, key: str, on: _Flag, off: _Flag) -> tuple[Option, Option]:
    """The two ways to set a variable; in a file they are what ``key`` is, true or false."""
    return Option(*on, variable, key=key), Option(*off, variable, key=key, is_off=True)


TUNABLES: Table = {
    "how tensors travel": (
        Option(
            "--fusion-threshold-mb",
            "reduce at most MB MiB of tensors in one operation (0: each tensor alone)",
            ("MB", values.megabytes),
            "HOROVOD_FUSION_THRESHOLD",
            key="params.fusion_threshold_mb",
        ),
        Option(
            "--cycle-time-ms",
            "wait at most MS milliseconds for more tensors",
            ("MS", values.number),
            "HOROVOD_CYCLE_TIME",
            key="params.cycle_time_ms",
        ),
        Option(
            "--cache-capacity",
            "remember the descriptions of N operations (0: none)",
            _COUNT,
            "HOROVOD_CACHE_CAPACITY",
            key="params.cache_capacity",
        ),
        Option(
            "--thread-affinity",
            "pin the background thread of each local rank, for example to 0,2,4",
            ("CORES", values.cores),
            "HOROVOD_THREAD_AFFINITY",
            key="library_options.thread_affinity",
        ),
    ),
    "the network between hosts": (
        Option(
            "--network-interfaces",
            "let ranks of different hosts meet on these interfaces only, such as eth0,eth1",
            _INTERFACES,
            "HOROVOD_NETWORK_INTERFACES",
            argument="network_interfaces",
        ),
        Option("--network-interface", None, _INTERFACES, "HOROVOD_NETWORK_INTERFACES", adds=True),
        Option(
            "--port-range",
            "listen on ports of this range only, such as 20000-20999",
            ("FIRST-LAST", values.port_range),
            "HOROVOD_PORT_RANGE",
        ),
    ),
    "autotune": (
        *_switch(
            "HOROVOD_AUTOTUNE",
            "autotune.enabled",
            ("--autotune", "find the fastest settings while the program runs", "1"),
            ("--no-autotune", "keep the settings as they are (default)", "0"),
        ),
        Option(
            "--autotune-log-file",
            "write each sample to FILE (CSV)",
            ("FILE", str),
            "HOROVOD_AUTOTUNE_LOG",
            key="autotune.log_file",
        ),
        Option(
            "--autotune-warmup-samples",
            "drop the first N samples (3)",
            _COUNT,
            "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
            key="autotune.warmup_samples",
        ),
        Option(
            "--autotune-steps-per-sample",
            "measure N steps for each sample (10)",
            _COUNT,
            "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
            key="autotune.steps_per_sample",
        ),
        Option(
            "--autotune-bayes-opt-max-samples",
            "search with N samples (20)",
            _COUNT,
            "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
            key="autotune.bayes_opt_max_samples",
        ),
        Option(
            "--autotune-gaussian-process-noise",
            "how noisy samples are, from 0 (not at all) to 1 (0.8)",
            ("SHARE", values.share),
            "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
            key="autotune.gaussian_process_noise",
        ),
    ),
    "timeline": (
        Option(
            "--timeline-filename",
            "write a trace (Chrome JSON) to FILE; with {rank} in the name, one for each rank",
            ("FILE", str),
            "HOROVOD_TIMELINE",
            key="timeline.filename",
        ),
        *_switch(
            "HOROVOD_TIMELINE_MARK_CYCLES",
            "timeline.mark_cycles",
            ("--timeline-mark-cycles", "mark each batch in it", "1"),
            ("--no-timeline-mark-cycles", "mark none (default)", "0"),
        ),
        Option(
            "--merge-timelines",
            "start nothing: write one trace, OUT, from those of several ranks, which follow",
            ("OUT", str),
        ),
    ),
    "stall check": (
        *_switch(
            "HOROVOD_STALL_CHECK_DISABLE",
            "stall_check.enabled",
            ("--stall-check", "report operations that some ranks never submit (default)", "0"),
            ("--no-stall-check", "report no such operations", "1"),
        ),
        Option(
            "--stall-check-warning-time-seconds",
            "report after S seconds (10)",
            _SECONDS,
            "HOROVOD_STALL_CHECK_TIME_SECONDS",
            key="stall_check.warning_time_seconds",
        ),
        Option(
            "--stall-check-shutdown-time-seconds",
            "end the job after S seconds, and name the rank (0: never)",
            _SECONDS,
            _STALL,
            key="stall_check.shutdown_time_seconds",
        ),
        Option("--hang-timeout", "short for the option above", _SECONDS, _STALL),
    ),
    "MPI": (
        *_switch(
            "HOROVOD_MPI_THREADS_DISABLE",
            "library_options.mpi_threads_disable",
            (
                "--mpi-threads-disable",
                "where tensors travel by MPI: call it from one thread at a time",
                "1",
            ),
            ("--no-mpi-threads-disable", "call it from one thread for each process set (default)", "0"),
        ),
    ),
    "Gloo": (
        Option(
            "--gloo-timeout-seconds",
            "where tensors travel by Gloo: wait at most S seconds for other ranks (30)",
            _SECONDS,
            "HOROVOD_GLOO_TIMEOUT_SECONDS",
            key="library_options.gloo_timeout_seconds",
        ),
    ),
    "logging": (
        Option(
            "--log-level",
            f"what the ranks tell, one of {', '.join(values.LEVELS)}",
            ("LEVEL", values.level),
            "HOROVOD_LOG_LEVEL",
            key="logging.level",
        ),
        *_switch(
            _HIDE_TIME,
            "logging.with_timestamp",
            ("--log-with-timestamp", "log the time, too (default)", "0"),
            ("--log-without-timestamp", "log no time", "1"),
        ),
        *_switch(
            _HIDE_TIME,
            "logging.hide_timestamp",
            ("--log-hide-timestamp", None, "1"),
            ("--no-log-hide-timestamp", None, "0"),
        ),
    ),
}
