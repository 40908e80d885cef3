"""The decorator ``run`` of every adapter, and what its framework's errors become within."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.elastic.checkpoint.options import Options

InternalErrors = Callable[[], contextlib.AbstractContextManager[None]]
Decorator = Callable[..., Callable[..., Any]]


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


def run_with(internal_errors: InternalErrors = contextlib.nullcontext) -> Decorator:
    """The decorator ``run`` of an adapter.

    Args:
        internal_errors: makes a context within which the framework's errors for a job that is lost become a
            HorovodInternalError.
    """

    def run(
        func: Callable[..., Any] | None = None,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        every_commits: int | None = None,
        every_seconds: float | None = None,
        keep: int = 3,
        allow_pickle: bool = False,
    ) -> Callable[..., Any]:
        """A decorator: ``func(state, ...)`` runs again, from the last commit, when ranks are lost, and from
        where it is when hosts have changed. With a folder, some commits are written there in the background,
        and a job that starts anew goes on from the newest::

            @hvd.elastic.run
            @hvd.elastic.run(checkpoint_dir="checkpoints", every_seconds=300)

        Args:
            func: the training; its first argument is the state.
            checkpoint_dir: the folder; None: that of HOROVOD_CHECKPOINT_DIR, or none.
            every_commits: write every so many commits.
            every_seconds: write after so many seconds; 60 when neither is given.
            keep: how many checkpoints to keep.
            allow_pickle: whether attributes may be pickled that have no other form on disk. Whoever can write
                to the folder can then run programs as you.

        Returns:
            The function to call; it raises CheckpointError when the folder, or what is in it, cannot be used.

        Raises:
            ValueError: a number is too small.
        """
        path = "" if checkpoint_dir is None else os.fspath(checkpoint_dir)
        checkpoints = Options(path, every_commits, every_seconds, keep, allow_pickle)
        make = functools.partial(_elastic, internal_errors=internal_errors, checkpoints=checkpoints)
        return make if func is None else make(func)

    return run


def _elastic(
    func: Callable[..., Any], internal_errors: InternalErrors, checkpoints: Options
) -> Callable[..., Any]:
    from horovod.elastic.run import run_fn  # late: it is for elastic jobs only

    @functools.wraps(func)
    def translated(*arguments: Any, **options: Any) -> Any:
        with internal_errors():
            return func(*arguments, **options)

    return run_fn(translated, checkpoints=checkpoints)
