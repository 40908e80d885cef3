"""The loop around a training function: when ranks are lost or come, the others start again and go on."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from horovod.bootstrap.start import elastic_membership
from horovod.bootstrap.text import escaped, log
from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, TensorMismatchError
from horovod.elastic import notices, preemption
from horovod.elastic.checkpoint.durability import kept
from horovod.elastic.checkpoint.options import Options

Result = TypeVar("Result")


class Recoverable(Protocol):
    """What the loop asks of the state of a training; see ``state.State``."""

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Hosts came or went."""

    def sync(self) -> None:
        """Gives all ranks the state of the one that has come furthest."""

    def restore(self) -> None:
        """Goes back to the last commit."""

    def on_reset(self) -> None:
        """The ranks have started again."""


def run_fn(
    func: Callable[..., Result],
    reset: Callable[[], None] | None = None,
    checkpoints: Options | None = None,
) -> Callable[..., Result]:
    """Makes a training function elastic.

    Args:
        func: ``func(state, ...)``, which calls ``state.commit()`` now and then and returns when the training
            is done. It may be called several times.
        reset: leaves the job and joins its next generation; None: ``hvd.shutdown()`` and ``hvd.init()``.
        checkpoints: where they go, and how often; None: as the environment says.

    Returns:
        The function to call on every rank, with the same arguments.

    Raises (when it is called):
        TensorMismatchError: the ranks disagree about an operation. Trying again would not help.
        Exception: anything else that ``func`` raises, but HorovodInternalError, after which it goes back to
            the last commit, and HostsUpdatedInterrupt, after which it goes on.
    """
    reset = reset or _reset

    @functools.wraps(func)
    def wrapper(state: Recoverable, *args: Any, **kwargs: Any) -> Result:
        in_turn = getattr(state, "_in_turn", contextlib.nullcontext)  # a state of the user's own may lack it
        notices.register(state)
        try:
            with in_turn(), preemption.heard(), kept(state, checkpoints or Options()):
                return _run(func, reset, state, args, kwargs)
        finally:
            notices.remove(state)

    return wrapper


def _run(
    func: Callable[..., Result],
    reset: Callable[[], None],
    state: Recoverable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Result:
    is_synced, has_ranks = False, True
    while True:
        try:
            if not has_ranks:
                with preemption.at_once():
                    reset()
                is_synced, has_ranks = is_synced and not _has_newcomers(), True
                if _has_missed_a_start():  # others were in it, and have gone back since: to the same commit
                    state.restore()
                state.on_reset()
            if not is_synced:
                state.sync()
                _tell_launcher(state)
            return func(state, *args, **kwargs)
        except TensorMismatchError:
            raise
        except HorovodInternalError as error:
            _tell(escaped(str(error)))
            state.restore()
            is_synced = False
        except HostsUpdatedInterrupt as interrupt:
            _tell("hosts came or went")
            is_synced = interrupt.skip_sync
        has_ranks = False


def _tell_launcher(state: Recoverable) -> None:
    """This rank has the state, and can give it to others; a folder has it, too, where there is one."""
    membership = elastic_membership()
    if membership is not None:
        membership.hold(is_durable=getattr(state, "durability", None) is not None)


def _has_newcomers() -> bool:
    """Whether a rank has just come, which waits for the state."""
    membership = elastic_membership()
    return membership is not None and membership.place is not None and membership.place.has_newcomers


def _has_missed_a_start() -> bool:
    """Whether the ranks have met since the training stopped here, without this one."""
    membership = elastic_membership()
    return membership is not None and membership.has_missed


def _tell(reason: str) -> None:
    log("info", basics.rank(), f"{reason}; the ranks start again")


def _reset() -> None:
    basics.shutdown()
    basics.init()
