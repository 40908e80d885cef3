"""``HorovodRunner``, for notebooks that were written for the platforms which had it."""

import os
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from horovod.runner.call.run import run as on_this_machine

from .runner import run as on_executors
from .tasks import slots

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
        context = SparkContext._active_spark_context
        most = 0 if context is None else slots(context)
        if most and count > most:
            raise ValueError(f"HorovodRunner(np={count}): the application runs {most} tasks at a time")
        count = count or most
        with open(os.devnull, "w") as nobody:
            to = nobody if self._is_quiet else None
            return on_executors(main, kwargs=kwargs, num_proc=count or None, stdout=to, stderr=to)[0]
