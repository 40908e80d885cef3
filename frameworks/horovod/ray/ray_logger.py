"""What a rank tells the driver while it works: each dict reaches the ``callbacks`` of ``run`` there."""

import os
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle

from horovod.bootstrap.start_settings import is_elastic
from horovod.runner.call import notes


class Queue(Protocol):
    """What takes the values of this process."""

    def put(self, value: Any) -> object:
        """Sends one."""


_queue: Queue | None = None


def configure(queue: Queue | None) -> None:
    """Says where the values of this process go. An executor does it on each rank."""
    global _queue
    _queue = queue


def log(info_dict: Mapping[str, Any], chief_only: bool = True) -> None:
    """Sends a dict to the driver. Warns where nobody has called ``configure``, as outside of a job.

    Args:
        info_dict: values that can be pickled.
        chief_only: whether only rank 0 sends it, and the others do nothing.
    """
    if chief_only and os.environ.get("HOROVOD_RANK") != "0":
        return
    if _queue is not None:
        _queue.put(info_dict)
    elif is_elastic(os.environ):
        notes.send(cloudpickle.dumps(info_dict))
    else:
        warnings.warn("ray_logger.log: this process is no rank of an executor", stacklevel=2)


def hand_over(data: bytes, callbacks: Sequence[Callable[[Any], Any]]) -> None:
    """In the driver, what a rank has sent, which has proved the secret of the job."""
    for callback in callbacks:
        callback(pickle.loads(data))
