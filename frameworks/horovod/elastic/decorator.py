"""The decorator ``run`` of every adapter, and what its framework's errors become within."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.elastic.checkpoint.options import Options


@contextlib.contextmanager
def internal_errors_of(kind: type[Exception], is_lost: Callable[[str], object]) -> Iterator[None]:
    """Within it, the error by which a framework tells that an operation of ours has lost the job becomes a
    HorovodInternalError.

    Args:
        kind: its class.
        is_lost: whether a message of such an error tells that.
    """
    try:
        yield
    except kind as error:
        message = str(getattr(error, "message", None) or error)
        if is_lost(message):
            raise HorovodInternalError(message) from error
        raise


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
