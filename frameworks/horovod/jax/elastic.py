"""Training with JAX that goes on when workers are lost and when workers come::

import horovod.jax as hvd

hvd.init()
state = hvd.elastic.JaxState(params=params, opt_state=opt_state, batch=0)

@hvd.elastic.run
def train(state):
    for state.batch in range(state.batch, batches):
        state.params, state.opt_state = step(state.params, state.opt_state)
        state.commit()

train(state)
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax

from horovod.common import basics
from horovod.elastic.decorator import internal_errors_of, run_with
from horovod.elastic.handlers import HandlerState
from horovod.jax import internals
from horovod.jax.functions import broadcast_object

_LOST = "HorovodInternalError: "  # see Call::Complete in frameworks/xla_ops/call.cc


def internal_errors() -> contextlib.AbstractContextManager[None]:
    """See ``internal_errors_of``."""
    return internal_errors_of(jax.errors.JaxRuntimeError, lambda message: _LOST in message)


run = run_with(internal_errors)


class JaxState(HandlerState):
    """What a training needs to go on: pytrees of arrays, and whatever else can be pickled.

    Args:
        **kwargs: attributes, such as ``params=params, opt_state=opt_state, epoch=0``. Assign to them what a
            step returns.
    """

    def __init__(self, **kwargs: Any) -> None:
        objects = functools.partial(broadcast_object, name="state.sync(): objects")
        super().__init__(objects, basics.rank, **kwargs)

    def restore(self) -> None:
        """See ``State``."""
        internals.let_programs_end()
        super().restore()

    def _settle(self) -> None:
        # What was called may still fail, and then has to be known before anything is saved.
        with internal_errors():
            jax.block_until_ready([getattr(self, name) for name in self._names])
