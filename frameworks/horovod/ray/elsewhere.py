"""Elastic jobs of a driver outside of the cluster, by Ray Client: an actor within leads the job."""

import contextlib
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horovod.runner.call.child import show

_POLL_SECONDS = 0.2
_LOGGED = "logged"


class _Stream:
    """What the actor has for stdout or stderr while the job runs."""

    def __init__(self, name: str, heard: "queue.SimpleQueue[tuple[str, Any]]") -> None:
        self._name, self._heard = name, heard

    def write(self, text: str) -> int:
        self._heard.put((self._name, text))
        return len(text)

    def flush(self) -> None:
        pass


class _Leader:
    """The actor."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._heard: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
        """See ElasticJob."""
        streams: Any = [_Stream(name, self._heard) for name in ("stdout", "stderr")]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            found: list[Any] = self._job.run(function, args, kwargs, [self._keep])
        return found

    def poll(self) -> list[tuple[str, Any]]:
        """What has been heard since the last call: a stream and a text, or what a rank has logged."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._heard.get(timeout=_POLL_SECONDS))
            while True:
                found.append(self._heard.get_nowait())
        return found

    def _keep(self, value: Any) -> None:
        self._heard.put((_LOGGED, value))


def run_elsewhere(
    job: Any,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    callbacks: Sequence[Callable[[Any], Any]],
) -> list[Any]:
    """What ``job.run`` returns, or raises, in the cluster; output and callbacks are here."""
    leader = ray.remote(_Leader).options(num_cpus=0, max_concurrency=2).remote(job)
    result = leader.run.remote(function, args, kwargs)
    try:
        while True:
            done, _ = ray.wait([result], timeout=0)
            for kind, value in ray.get(leader.poll.remote()):
                if kind != _LOGGED:
                    show(getattr(sys, kind), value)
                else:
                    for callback in callbacks:
                        callback(value)
            if done:
                found: list[Any] = ray.get(result)
                return found
    finally:
        ray.kill(leader)
