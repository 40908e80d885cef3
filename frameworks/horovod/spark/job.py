"""A job whose hosts are tasks of Spark: the launcher runs here, and ends with the tasks."""

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from pyspark import SparkContext

from horovod.bootstrap import secret
from horovod.common.exceptions import HorovodInternalError
from horovod.runner import engines
from horovod.runner.call.child import Caller
from horovod.runner.call.packing import RemoteTraceback
from horovod.runner.call.run import command, run_job
from horovod.runner.common.util.timeout import TimeoutException

from .agents import Terms, serve
from .tasks import Tasks

_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 2.0  # for the launcher to find the first cause, and for Spark to say what became of a task
_END_SECONDS = 10.0


@dataclass(frozen=True)
class Plan:
    """A job before it runs. ``fewest`` of ``tasks`` have to come within ``start_seconds``; ``options`` are
    those of horovodrun, but for where the hosts meet. ``goes_on``: when tasks are lost.
    """

    tasks: int
    fewest: int
    options: Sequence[str]
    variables: Mapping[str, str]
    start_seconds: float
    executable: str | None = None
    stdout: TextIO | None = None
    stderr: TextIO | None = None
    goes_on: bool = False


def run(
    context: SparkContext, plan: Plan, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
) -> list[Any]:
    """What the function returns on each rank; see ``horovod.spark.run`` for what it raises."""
    address = engines.address_at(context.getConf().get("spark.driver.host"), plan.variables)
    key = secrets.token_bytes(secret.SECRET_BYTES)
    offer = secret.offer(key)
    words = [*plan.options, "--rendezvous", address, "--", *command(plan.executable or context.pythonExec)]
    tasks = Tasks(context, plan.tasks, partial(serve, Terms(address, key, plan.variables, plan.goes_on)))
    watch = _Watch(tasks, plan)
    try:
        environ = {**os.environ, **launchers(plan.variables), **offer.variables}
        caller = Caller(environ, plan.stdout, plan.stderr, on_start=watch.begin)
        found = run_job(words, function, args, kwargs, caller)
        if not (plan.goes_on and tasks.waiting):  # who waits would begin when the others end
            tasks.wait(_END_SECONDS)  # they end with the job
        return found
    except Exception as error:
        raise watch.explained(error) from error.__cause__
    finally:
        watch.close()
        tasks.close()
        offer.close()


def launchers(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the ranks' variables that the launcher has, too."""
    return {name: value for name, value in variables.items() if name.startswith("HOROVOD_")}


class _Watch:
    """Ends the job of the ranks when that of Spark cannot serve it, on a thread of its own."""

    def __init__(self, tasks: Tasks, plan: Plan) -> None:
        self._tasks = tasks
        self._plan = plan
        self._refusal: Exception | None = None
        self._closing = threading.Event()
        self._end: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="hvd-spark-watch", daemon=True)

    def begin(self, end: Callable[[], None]) -> None:
        """Has the tasks come to the launcher, which ``end`` ends."""
        self._end = end
        self._tasks.start()
        self._thread.start()

    def close(self) -> None:
        """The job has ended."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def explained(self, error: Exception) -> Exception:
        """What the driver raises for the failure of its launcher: the cause, where Spark knows it."""
        if self._refusal is not None:
            return self._refusal
        cause = error.__cause__
        if not self._thread.ident:  # no task was asked for
            return error
        if isinstance(cause, RemoteTraceback) and not isinstance(error, HorovodInternalError):
            return error
        end = time.monotonic() + _GRACE_SECONDS
        while not self._tasks.failed and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        lost = self._tasks.failures() if self._tasks.failed or self._tasks.error else []
        if not lost:
            return error
        return RuntimeError("\n".join([*lost, str(error)]))

    def _run(self) -> None:
        deadline = time.monotonic() + self._plan.start_seconds
        have_come = False
        while not self._closing.wait(_LOOK_SECONDS):
            if self._tasks.has_ended or (self._tasks.failed and not self._plan.goes_on):
                self._closing.wait(_GRACE_SECONDS)
                self._end()
                return
            have_come = have_come or self._tasks.running >= self._plan.fewest
            if not have_come and time.monotonic() > deadline:
                self._refusal = TimeoutException(self._late())
                self._end()
                return

    def _late(self) -> str:
        tasks, seconds = self._tasks, self._plan.start_seconds
        return (
            f"{tasks.running} of {self._plan.tasks} tasks of Spark have started within {seconds:g} s "
            f"(start_timeout, HOROVOD_SPARK_START_TIMEOUT): {tasks.what_is_missing()}. Ask for fewer ranks, "
            "give the application more cores, or wait longer"
        )
