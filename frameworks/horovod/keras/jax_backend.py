"""JAX as the backend of the Keras parts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import keras

import horovod.jax as hvd
from horovod._keras import optimizer as keras3_optimizer
from horovod._keras.backend import Backend, Plan
from horovod.common.collective.compression import resolve_plain_compression
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.agreement import agree_on_gradients, described, own_name
from horovod.common.training.gradient_options import cut_into_groups, group_name, takes_part
from horovod.jax import internals


class JaxBackend(Backend):
    """See ``horovod._keras.backend.Backend``. Keras compiles the step, and with it what is here."""

    name = "jax"
    hvd = hvd

    def distribute(self, optimizer: Any, plan: Plan) -> Any:
        """See ``Backend``."""
        keras3_optimizer.check_is_of(keras, optimizer, "JAX")
        if plan.settings.backward_passes_per_step > 1:
            raise ValueError(
                "On JAX Keras itself adds up gradients: give the optimizer gradient_accumulation_steps in "
                "place of backward_passes_per_step."
            )
        return keras3_optimizer.distribute(optimizer, plan, keras)

    def reduce_gradients(self, gradients: Sequence[Any], variables: Sequence[Any], plan: Plan) -> list[Any]:
        """See ``Backend``. Which variables have a gradient is a constant of the compiled step: None must be
        None on all ranks. JAX gives zeros for what has no influence.
        """
        settings = plan.settings
        if not takes_part(settings.process_set):
            return list(gradients)
        reduced = described(variables)
        agree_on_gradients(plan.name, settings, reduced, variables, id)
        present = [place for place, gradient in enumerate(gradients) if gradient is not None]
        together, alone = cut_into_groups(present, settings.groups, id, lambda place: id(variables[place]))
        results = list(gradients)
        for members in [*together, *([place] for place in alone)]:
            names = [f"{plan.name}.{place}.{own_name(variables[place])}" for place in members]
            group = hvd.grouped_allreduce(
                [gradients[place] for place in members],
                name=group_name(names),
                compression=resolve_plain_compression(settings.compression, "the gradients of Keras"),
                op=settings.op,
                prescale_factor=settings.prescale,
                postscale_factor=settings.postscale,
                process_set=settings.process_set,
            )
            for place, gradient in zip(members, group, strict=True):
                results[place] = gradient
        return results

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """See ``Backend``."""
        arrays = hvd.broadcast_parameters([v.value for v in variables], root_rank, process_set)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)

    def tensor(self, value: Any) -> Any:
        """See ``Backend``."""
        return keras.ops.convert_to_tensor(value)

    def internal_errors(self) -> contextlib.AbstractContextManager[None]:
        """See ``Backend``."""
        return hvd.elastic.internal_errors()

    def settle(self) -> None:
        """See ``Backend``."""
        internals.wait_for_programs()

    def give_back(self, model: Any) -> None:
        """See ``Backend``."""
        sync = getattr(model, "jax_state_sync", None)
        if sync is not None:
            sync()

    def forget_passes(self, model: Any) -> None:
        """See ``Backend``."""
        if getattr(model, "_jax_state", None):
            model._jax_state, model._jax_state_synced = None, True


backend = JaxBackend()
