"""The tasks of a job, as the driver has them: started together, watched, cancelled."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.status import StatusTracker

_END_SECONDS = 10.0
_AGAIN_SECONDS = 0.25
_MOST_TEXT = 2000
_numbers = itertools.count(1)


class Tasks:
    """So many tasks that each call ``body`` with their number, as one job of Spark on a thread of its own,
    once they are started.
    """

    def __init__(self, context: SparkContext, count: int, body: Callable[[int], list[str]]) -> None:
        self.count = count
        self.refusals: list[str] = []  # what the tasks have returned
        self.error: BaseException | None = None
        self._context = context
        self._group = f"horovod.spark-{os.getpid()}-{next(_numbers)}"
        self._closing = threading.Event()
        self._thread: Any = InheritableThread(target=self._run, args=[body], daemon=True)

    def start(self) -> None:
        """Asks Spark for them."""
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether none will do anything any more."""
        return not self._thread.is_alive()

    @property
    def running(self) -> int:
        """How many run now. What Spark says of a stage as a whole can be older than a start_timeout."""
        with contextlib.suppress(Py4JError):  # the application is being stopped
            return sum(task.status() == "RUNNING" for task in self._tasks())
        return 0

    @property
    def waiting(self) -> int:
        """How many wait for a slot, those included that are to start again."""
        return sum(
            stage.numTasks - stage.numActiveTasks - stage.numCompletedTasks for stage in self._stages()
        )

    @property
    def failed(self) -> int:
        """How many have failed, those included that Spark has started again."""
        return sum(stage.numFailedTasks for stage in self._stages())

    def failures(self) -> list[str]:
        """What Spark says of tasks that have failed, and of its job: a text for each."""
        if self._spark() is None:
            return ["the application of Spark has been stopped"]
        found = list(dict.fromkeys(self._task_errors())) or self.refusals
        return found or (
            [] if self.error is None else [f"the job of Spark failed: {_short(str(self.error))}"]
        )

    def what_is_missing(self) -> str:
        """Why tasks wait, by what Spark says of itself."""
        needs = {"spark.task.cpus": self._context.getConf().get("spark.task.cpus", "1")}
        needs |= {name: value for name, value in self._context.getConf().getAll() if _is_need(name)}
        wants = ", ".join(f"{name}={value}" for name, value in needs.items())
        waiting = self.count - self.running
        return f"{waiting} wait for a free slot ({wants}) of {self._room()}"

    def _room(self) -> str:
        master, spark = self._context.master, self._spark()
        if spark is None:
            return f"{master}, where the application has been stopped"
        if master.startswith("local["):
            return f"{master}, which has {spark.defaultParallelism()}"
        count = len(spark.statusTracker().getExecutorInfos()) - 1  # the driver is no executor
        return f"{master}, where the application has {count} executor{'' if count == 1 else 's'}"

    def close(self) -> None:
        """Cancels what still runs, once the job of the ranks has ended."""
        self._closing.set()
        end = time.monotonic() + _END_SECONDS
        while self._thread.is_alive() and time.monotonic() < end:
            spark = self._spark()
            if spark is not None:
                with contextlib.suppress(Py4JError):  # it is being stopped
                    spark.cancelJobGroup(self._group)  # in vain, as long as Spark has not got the job
            self._thread.join(_AGAIN_SECONDS)

    def wait(self, seconds: float) -> None:
        """For their end."""
        self._thread.join(seconds)

    def _run(self, body: Callable[[int], list[str]]) -> None:
        def serve(index: int, _: Any) -> Iterator[str]:
            yield from body(index)

        text = f"{self.count} tasks, each an agent of horovodrun"
        try:
            self._context.setJobGroup(self._group, text, interruptOnCancel=True)
            slices = self._context.range(0, self.count, numSlices=self.count)
            tasks = slices.mapPartitionsWithIndex(serve)
            if not self._closing.is_set():
                self.refusals = tasks.collect()
        except Exception as error:
            self.error = error

    def _spark(self) -> Any:
        """The SparkContext of Java; None: the application has been stopped."""
        java = self._context._jsc
        return None if java is None else java.sc()

    def _stages(self) -> list[Any]:
        java = self._context._jsc
        if java is None:  # the application has been stopped
            return []
        try:
            tracker = StatusTracker(java.statusTracker())
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
            stages = [
                tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
            ]
        except Py4JError:  # it is being stopped
            return []
        return [stage for stage in stages if stage is not None]

    def _tasks(self) -> Iterator[Any]:
        """From the store behind Spark's own pages: it alone knows them one by one."""
        spark = self._spark()
        for stage in self._stages() if spark is not None else ():
            store = spark.statusStore()
            tasks = store.taskList(stage.stageId, stage.currentAttemptId, self.count * 5)
            yield from map(tasks.apply, range(tasks.size()))

    def _task_errors(self) -> Iterator[str]:
        for task in self._tasks():
            if task.errorMessage().isDefined():
                where = f"task {task.index()} on executor {task.executorId()} of {task.host()}"
                yield f"{where}: {_reason(task.errorMessage().get())}"


def slots(context: SparkContext) -> int:
    """How many tasks the application runs at a time; 0: nobody knows, since executors come by dynamic
    allocation.
    """
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return 0
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def _is_need(name: str) -> bool:
    return name.startswith("spark.task.resource.") and name.endswith(".amount")


def _reason(text: str) -> str:
    """Why a task has failed; its Python fails before any of ours runs if it has none of it."""
    if "No module named 'horovod'" in text:
        return (
            "the Python there has no horovod. Install it on all machines, and let PYSPARK_PYTHON name the "
            "Python that has it, before the application begins"
        )
    return _short(text)


def _short(text: str) -> str:
    """Without the stack of Java, and of what is long the end: there a traceback of Python names the error."""
    return text.partition("\n\tat ")[0].strip()[-_MOST_TEXT:]
