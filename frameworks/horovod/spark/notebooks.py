"""``HorovodRunner``, for notebooks that were written for the platforms which had it."""

import io
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from horovod.runner.call.run import run as on_this_machine

from .runner import run as on_executors

_VERBOSITIES = ("log_callback_only", "all")


class HorovodRunner:
    """Calls a function on the ranks of a job, and returns what it returned on rank 0.

    Args:
        np: so many ranks on the executors; negative: -np ranks on the driver; 0: as many as there are slots.
        driver_log_verbosity: "all" shows what ranks print, "log_callback_only" does not.

    Raises:
        ValueError: of a value that it cannot be.
    """

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        if driver_log_verbosity not in _VERBOSITIES:
            raise ValueError(f"driver_log_verbosity={driver_log_verbosity!r}: it is one of {_VERBOSITIES}")
        self.num_processor = np
        self._is_quiet = driver_log_verbosity != "all"

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls ``main`` with these arguments on each rank.

        Returns:
            What it returned on rank 0.

        Raises:
            ValueError: the application has fewer slots than ``np``.
            Exception: see ``horovod.run`` and ``horovod.spark.run``.
        """
        count = self.num_processor
        if count < 0:
            return on_this_machine(main, kwargs=kwargs, num_proc=-count)[0]
        _check_slots(count)
        streams: Any = {"stdout": io.StringIO(), "stderr": io.StringIO()} if self._is_quiet else {}
        return on_executors(main, kwargs=kwargs, num_proc=count or None, **streams)[0]


def _check_slots(count: int) -> None:
    """Where executors come by dynamic allocation, nobody knows how many there will be."""
    context = SparkContext._active_spark_context
    if context is None or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    slots = context.defaultParallelism
    if count > slots:
        raise ValueError(f"HorovodRunner(np={count}): the application runs {slots} tasks at a time")
