"""``horovod.spark.run`` and ``run_elastic``: their arguments."""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO, TypeVar

from pyspark import SparkContext
from pyspark.sql.utils import is_remote

from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE
from horovod.runner.engines import nics_to_env_var

from . import connect, job
from .tasks import slots

Result = TypeVar("Result")

_START_VARIABLE = "HOROVOD_SPARK_START_TIMEOUT"
_START_SECONDS = 600.0
_LOST_SECONDS = "8"  # executors are in one network: a connection that breaks there has lost its executor
_RANKS_SECONDS = 30  # which ranks have to find each other, beside what the tasks have


def run(
    fn: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: str | Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Result]:
    """Calls a function on each rank of a job whose hosts are tasks of Spark, and returns what they return.

    Each task takes a slot of the application for one rank. Ranks on one machine are those of one host; the
    hosts are in the order of their first tasks. The function and its arguments are pickled; see
    ``horovod.run``.

    Example::

        results = horovod.spark.run(train, args=(0.1,), num_proc=4)

    Args:
        fn: what each rank calls; it calls ``hvd.init()`` as a training script does.
        args: its positional arguments, the same on every rank.
        kwargs: its keyword arguments.
        num_proc: how many ranks; by default as many as the application runs tasks
            (``spark.default.parallelism``).
        start_timeout: how many seconds the tasks have to start, HOROVOD_SPARK_START_TIMEOUT or 600 by
            default.
        use_mpi: refused: MPI can start a program, and no function. Not together with ``use_gloo``.
        use_gloo: accepted; the controller that works without MPI is the only one.
        extra_mpi_args: accepted, and not used.
        env: variables for the ranks, beside the environment of their executor. That of the driver is not
            theirs.
        stdout: a stream for what ranks print, each line behind ``[rank]<stdout>:``; ``sys.stdout`` by
            default.
        stderr: likewise.
        verbose: 2 to say what is started.
        nics: the network interfaces on which ranks meet.
        prefix_output_with_timestamp: whether each line begins with the time.
        executable: the Python of the ranks, by default that of the executors (PYSPARK_PYTHON).

    Returns:
        What the function returned on each rank, in rank order.

    Raises:
        ValueError: arguments exclude each other or cannot be, or the application starts tasks twice
            (``spark.speculation``).
        TimeoutException: not all tasks have started in time; the text says how many have, and what the
            others wait for.
        RuntimeError: a rank ended without a result, or its executor did; the text says which, and why.
        Exception: what the function raised on the rank that failed first. Its ``__cause__`` has the
            traceback of that rank.
    """
    if use_mpi:
        also = " and use_gloo exclude each other; and" if use_gloo else ":"
        raise ValueError(f"horovod.spark.run: use_mpi{also} MPI can start a program, and no function")
    if extra_mpi_args:
        warnings.warn("horovod.spark.run: extra_mpi_args is not used", stacklevel=2)
    context = None if is_remote() else _context("run")
    count = _count(num_proc, context)
    _check_slots(count, context)
    seconds = _start_seconds(start_timeout)
    plan = job.Plan(
        count,
        count,
        _words({"-np": count, "--wait-for-hosts": count}, seconds, verbose, prefix_output_with_timestamp),
        _variables(context, nics, env),
        seconds,
        executable,
        stdout,
        stderr,
    )
    if context is None:
        return connect.run(plan, fn, args, kwargs or {})
    return job.run(context, plan, fn, args, kwargs or {})


def run_elastic(
    fn: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: str | Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Result]:
    """Likewise a job that goes on when executors or ranks are lost, and uses executors that come.

    Each task is a host of its own, of one rank. Spark starts a task again whose executor is lost, and the new
    one joins the job, up to ``spark.task.maxFailures`` times.

    Args:
        fn: what each rank calls, and each that comes later; it calls ``hvd.init()``, and has its training in
            a function with ``@hvd.elastic.run``.
        args, kwargs, env, stdout, stderr, verbose, nics, prefix_output_with_timestamp: see ``run``.
        num_proc: with so many ranks the job begins; by default as many as the application runs tasks.
        min_num_proc: it goes on as long as there are so many, ``num_proc`` by default.
        max_num_proc: to so many it may grow, ``num_proc`` by default. There are as many tasks.
        start_timeout: how many seconds ``num_proc`` tasks have to start.
        elastic_timeout: how many seconds the job may be without ``min_num_proc`` ranks, 600 by default.
        reset_limit: how often its ranks may start again.
        min_np, max_np: deprecated names of ``min_num_proc`` and ``max_num_proc``.

    Returns:
        What the function returned on each rank that did its work to the end, in the order of the ranks.

    Raises:
        ValueError: as of ``run``.
        TimeoutException: not all tasks have started in time.
        RuntimeError: the job cannot go on; the text has the launcher's report.
        Exception: what the function raised on the last ranks.
    """
    for old, new in (("min_np", min_np), ("max_np", max_np)):
        if new is not None:
            text = f"horovod.spark.run_elastic: {old} is deprecated, use {old.replace('np', 'num_proc')}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
    context = _context("run_elastic")
    count = _count(num_proc, context)
    most = max_num_proc or max_np or max(count, min_num_proc or min_np or 0)
    fewest = min_num_proc or min_np or min(count, most)
    if num_proc is None:
        count = min(max(count, fewest), most)
    if not fewest <= count <= most:
        raise ValueError(f"horovod.spark.run_elastic: {fewest} <= num_proc={count} <= {most} does not hold")
    seconds = _start_seconds(start_timeout)
    options: dict[str, float | None] = {
        "-np": count,
        "--min-np": fewest,
        "--max-np": most,
        "--wait-for-hosts": 1,
        "--slots-per-host": 1,
        "--reset-limit": reset_limit,
        "--elastic-timeout": elastic_timeout,
    }
    plan = job.Plan(
        most,
        count,
        _words(options, seconds, verbose, prefix_output_with_timestamp),
        _variables(context, nics, env),
        seconds,
        stdout=stdout,
        stderr=stderr,
        goes_on=True,
    )
    return job.run(context, plan, fn, args, kwargs or {})


def _context(name: str) -> SparkContext:
    """That of the application which this process drives."""
    if is_remote():
        raise ValueError(f"horovod.spark.{name} does not work over Spark Connect; horovod.spark.run does")
    context = SparkContext._active_spark_context
    if context is None:
        raise ValueError(
            f"horovod.spark.{name}: there is no application of Spark yet. Begin with "
            "SparkSession.builder.getOrCreate()"
        )
    if context.getConf().get("spark.speculation", "false").lower() == "true":
        raise ValueError(
            f"horovod.spark.{name}: spark.speculation is on, so that Spark would start ranks twice. Set it "
            "to false for this application"
        )
    return context


def _count(num_proc: int | None, context: SparkContext | None) -> int:
    if context is None and not num_proc:
        raise ValueError(
            "horovod.spark: over Spark Connect nobody knows how many tasks can run: say num_proc"
        )
    if num_proc is not None and num_proc < 1:
        raise ValueError(f"horovod.spark: num_proc={num_proc}: a job has at least 1 rank")
    return num_proc or context.defaultParallelism  # type: ignore[union-attr]


def _check_slots(count: int, context: SparkContext | None) -> None:
    """A cluster may get more executors while tasks wait for a slot; this machine has as many as it has."""
    if context is None or context.master.partition("[")[0] != "local":
        return
    if (most := slots(context)) < count:
        raise ValueError(
            f"horovod.spark.run: {context.master} runs {most} tasks at a time, too few for num_proc={count}: "
            f"make the session with master('local[{count}]')"
        )


def _start_seconds(given: float | None) -> float:
    name, value = "start_timeout", given
    if value is None:
        name, value = _START_VARIABLE, os.environ.get(_START_VARIABLE) or _START_SECONDS  # type: ignore[assignment]
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"horovod.spark: {name}={value!r}: it is a number of seconds, 0 or more")
    return seconds


def _words(
    options: Mapping[str, float | None], start_seconds: float, verbose: int, has_time: bool
) -> list[str]:
    """Of horovodrun."""
    given = {**options, "--start-timeout": start_seconds + _RANKS_SECONDS}
    numbers = {name: str(math.ceil(value)) for name, value in given.items() if value is not None}
    words = [word for option in numbers.items() for word in option]
    words += ["--verbose"] if verbose >= 2 else []
    return words + (["--prefix-output-with-timestamp"] if has_time else [])


def _variables(
    context: SparkContext | None, nics: str | Iterable[str] | None, env: Mapping[str, str] | None
) -> dict[str, str]:
    """For the ranks. Spark itself says one thread for each core of a task, if the user says nothing."""
    for name, value in (env or {}).items():
        are_text = isinstance(name, str) and isinstance(value, str)
        if not are_text or not name or "=" in name or "\0" in name + value:
            raise ValueError(
                f"horovod.spark: env[{name!r}] is a {type(value).__name__} that no environment can have: "
                "names and values are strings without NUL, and names are without ="
            )
    name = "OMP_NUM_THREADS"
    said = "" if context is None else context.getConf().get(f"spark.executorEnv.{name}", "")
    given = {**({name: said} if said else {}), **nics_to_env_var(nics), **(env or {})}
    return {HOST_TIMEOUT_VARIABLE: _LOST_SECONDS, **given}
