"""The decorator ``run`` of every adapter."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from horovod.elastic.checkpoint.options import Options


def elastic(
    func: Callable[..., Any] | None,
    internal_errors: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    checkpoints: Options | None = None,
) -> Callable[..., Any]:
    """Makes a training elastic.

    Args:
        func: the training; its first argument is the state. None: what is returned takes it.
        internal_errors: makes a context within which the framework's errors for a job that is lost become a
            HorovodInternalError.
        checkpoints: where they go, and how often; None: as the environment says.

    Returns:
        The function to call.
    """
    if func is None:
        return lambda function: elastic(function, internal_errors, checkpoints)
    from horovod.elastic.run import run_fn  # late: it is for elastic jobs only

    @functools.wraps(func)
    def translated(*arguments: Any, **options: Any) -> Any:
        with internal_errors():
            return func(*arguments, **options)

    return run_fn(translated, checkpoints=checkpoints)
