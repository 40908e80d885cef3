"""The decorator ``run`` of every adapter."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def elastic(
    func: Callable[..., Any],
    internal_errors: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Callable[..., Any]:
    """Makes a training elastic.

    Args:
        func: the training; its first argument is the state.
        internal_errors: makes a context within which the framework's errors for a job that is lost become a
            HorovodInternalError.

    Returns:
        The function to call.
    """
    from horovod.elastic.run import run_fn  # late: it is for elastic jobs only

    @functools.wraps(func)
    def translated(*arguments: Any, **options: Any) -> Any:
        with internal_errors():
            return func(*arguments, **options)

    return run_fn(translated)
