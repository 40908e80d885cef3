"""The operations on JAX's arrays: the common ones, which are a primitive of JAX where it traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax

from horovod.common import basics
from horovod.common.collective.collectives import Collectives
from horovod.common.process_sets import ProcessSet, global_process_set, on_removal
from horovod.jax import internals, primitive
from horovod.jax.tensors import JaxGlue
from horovod.jax.traced import run_traced


class JaxCollectives(Collectives[jax.Array]):
    """The common operations. What JAX traces is recorded: it becomes part of the program."""

    def __init__(self) -> None:
        super().__init__(JaxGlue())

    def recorded(self, operation: str, tensors: Sequence[jax.Array], *arguments: Any) -> list[jax.Array]:
        """See Submission."""
        return run_traced(self, operation, tensors, arguments)

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when every rank of the process set has called it, and compiled functions that were called
        before have run. Not for functions that JAX traces.

        Args:
            process_set: the ranks that take part.

        Raises:
            HorovodInternalError: a rank is gone.
        """
        internals.wait_for_programs()
        super().barrier(process_set)

    def join(self, device: int = -1) -> int:
        """See Collectives."""
        internals.wait_for_programs()
        return super().join(device)


ops = JaxCollectives()
primitive.define(ops)

basics.before_shutdown(internals.let_programs_end)
basics.on_shutdown(ops.reset)
basics.on_shutdown(jax.clear_caches)  # compiled functions have the ranks of this job as constants
on_removal(jax.clear_caches)  # and the numbers of process sets
os.register_at_fork(after_in_child=ops.reset_in_child)
