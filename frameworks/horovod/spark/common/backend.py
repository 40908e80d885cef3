"""Where estimators train: an object with ``run`` and ``num_processes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pyspark import SparkContext

from horovod.spark.runner import run


@runtime_checkable
class Backend(Protocol):
    """What an estimator asks of its backend; no class needs to be derived from it."""

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], env: Mapping[str, str]
    ) -> Sequence[Any]:
        """Calls ``fn`` on each rank, with ``env`` added to its environment. Returns what the ranks return, in
        rank order.
        """

    def num_processes(self) -> int:
        """How many ranks there will be."""


class SparkBackend:
    """Ranks on the executors of a Spark application: ``horovod.spark.run``.

    Args:
        num_proc: how many ranks, by default as many as the application runs tasks.
        env: variables for the ranks.
        **kwargs: further arguments of ``horovod.spark.run``.
    """

    def __init__(
        self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        self._num_proc = num_proc
        self._env = env
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """See ``horovod.spark.run``, also for what it raises."""
        variables = {**(self._env or {}), **(env or {})}
        return run(fn, args, kwargs or {}, num_proc=self._num_proc, env=variables, **self._kwargs)

    def num_processes(self) -> int:
        """``num_proc``, or how many tasks the application runs.

        Raises:
            ValueError: neither is known, as over Spark Connect.
        """
        context = SparkContext._active_spark_context
        if not self._num_proc and context is None:
            raise ValueError("SparkBackend: nobody knows how many tasks can run: say num_proc")
        return self._num_proc or context.defaultParallelism
