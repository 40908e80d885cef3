"""How the gradients of one optimizer or trainer are averaged over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from horovod.common.collective import byte_objects
from horovod.common.collective.compression import Packed, resolve_plain_compression
from horovod.common.collective.operations import ALLREDUCE
from horovod.common.process_sets import check_process_set
from horovod.common.reduce_ops import Average
from horovod.common.set_agreement import exchange
from horovod.common.training.agreement import StepAgreement, phase
from horovod.common.training.gradient_options import GradientSettings, takes_part
from horovod.common.training.presence import Presence
from horovod.common.training.step_checks import of_steps
from horovod.common.util import split_list
from horovod.mxnet.engine import Options
from horovod.mxnet.functions import own_names
from horovod.mxnet.operations import overwrite
from horovod.mxnet.tensors import fill

_REMEDY = "hvd.broadcast_parameters(net.collect_params(), root_rank=0)"
_Described = tuple[tuple[int | str, str, tuple[int, ...], str], ...]


class GradientAverage:
    """How the gradients of one optimizer are averaged.

    Args:
        subject: What it is, for errors.
        prefix: Of the names of operations. None: a number that all ranks share tells the gradients of several
            optimizers apart, which all number theirs from 0 and whose operations may be under way at once.
        settings: How. The groups are a number, of groups of neighbours that travel as one operation each; 0:
            each gradient alone.
    """

    def __init__(self, subject: str, prefix: str | None, settings: GradientSettings) -> None:
        if settings.gradient_predivide_factor <= 0:
            raise ValueError(
                f"gradient_predivide_factor must be positive, not {settings.gradient_predivide_factor}"
            )
        if not isinstance(settings.groups, int) or settings.groups < 0:
            raise ValueError(f"num_groups must not be negative, but is {settings.groups}")
        self.process_set = settings.process_set
        self._prefix = prefix
        self._num_groups = settings.groups
        self._compressor = resolve_plain_compression(settings.compression, f"the gradients of a {subject}")
        self._factors = (settings.prescale, settings.postscale)
        self._subject = subject
        self._agreement = StepAgreement(subject, settings.process_set)
        self._facts = {**settings.facts(), "num_groups": str(settings.groups)}
        self._common: tuple[tuple[int, int], float] | None = None  # size of a batch, and the phase it is of

    def average(
        self,
        gradients: Sequence[tuple[int | str, Any]],
        weights: Sequence[tuple[str, Any]],
        batch_size: float | None = None,
    ) -> float | None:
        """Overwrites numbered gradients with their averages over the ranks. Low numbers go first: the next
        forward pass needs them first. What was not averaged before is compared first, so all ranks must come
        to it together: TensorMismatchError where they differ.

        Raises NonfiniteGradientError and ParameterDivergenceError where the environment asks for it; see
        ``common.training.step_checks``.

        Args:
            gradients: With their numbers.
            weights: What the gradients belong to, with the names that messages give them.
            batch_size: Over how many samples of this rank each gradient is a sum; None: not to be known.

        Returns:
            By what all ranks have to divide the averages, so that the mean of each rank counts alike; or
            ``batch_size``, where there was nothing to average.
        """
        if not gradients or not takes_part(self.process_set):
            return batch_size
        names = own_names(tuple(name for name, _ in weights))
        described = tuple(
            (number, numpy.dtype(gradient.dtype).name, gradient.shape, name)
            for (number, gradient), name in zip(gradients, names, strict=True)
        )
        self._agree(described)
        self._check(described, [gradient for _, gradient in gradients], weights)
        if batch_size is not None:
            batch_size = self._of_common_batch([gradient for _, gradient in gradients], batch_size)
        parts = split_list(gradients, self._num_groups) if self._num_groups else [[one] for one in gradients]
        for part in parts:
            if part:
                self._average_together(part)
        return batch_size

    def batch_sizes(self, batch_size: float) -> list[float]:
        """Those of all ranks, which tell each other theirs."""
        if not takes_part(self.process_set):
            return [batch_size]
        number = check_process_set(self.process_set)
        return list(exchange(float(batch_size), f"{self._names()}batch_size", number).values())

    def _of_common_batch(self, gradients: Sequence[Any], batch_size: float) -> float:
        """Scales sums over ``batch_size`` samples to sums over as many on every rank: the largest number of
        the first step. So a later step needs no message, and where batches are equal there is nothing to do.
        """
        if self._common is None or self._common[0] != phase():
            self._common = phase(), max(self.batch_sizes(batch_size))
        common = self._common[1]
        if batch_size != common:
            for gradient in gradients:
                gradient *= common / batch_size
        return common

    def present(self, weights: Sequence[Any]) -> list[bool]:
        """For each of some weights, whether any rank has a gradient that it has not used."""
        presence = Presence(byte_objects.operations, f"{self._names()}present", self.process_set)
        return presence.finish(presence.start([bool(weight._fresh_grad) for weight in weights]))

    def _agree(self, described: _Described) -> None:
        self._agreement.once(
            described,
            lambda: {
                **self._facts,
                **{
                    f"gradient {number!r}": f"{dtype} {shape} {name}"
                    for number, dtype, shape, name in described
                },
            },
        )

    def _check(
        self, described: _Described, gradients: Sequence[Any], weights: Sequence[tuple[str, Any]]
    ) -> None:
        checks = of_steps(self.process_set, self._agreement.numbered(self._subject), described, _REMEDY)
        if checks is None:
            return
        if checks.nonfinite:
            named = zip((name for name, _ in weights), gradients, strict=True)
            checks.note_first((name, _kind(gradient.asnumpy())) for name, gradient in named)
        checks.before_update((name, weight.asnumpy().tobytes()) for name, weight in weights)

    def _names(self) -> str:
        if self._prefix is not None:
            return self._prefix
        return self._agreement.numbered(self._subject) + "."

    def _average_together(self, part: Sequence[tuple[int | str, Any]]) -> None:
        numbers = [number for number, _ in part]
        priority = -numbers[0] if isinstance(numbers[0], int) else 0
        last = f"to{numbers[-1]}" if len(numbers) > 1 else ""
        name = f"{self._names()}{numbers[0]}{last}"
        packed = Packed(self._compressor, [gradient for _, gradient in part])
        options = Options(name, self.process_set, priority, Average, *self._factors, urgent=False)
        overwrite(ALLREDUCE, packed.tensors, options)
        for (_, gradient), result in zip(part, packed.unpacked(), strict=True):
            if result is not gradient:
                fill(gradient, result)


def _kind(values: Any) -> str | None:
    if numpy.isfinite(values).all():
        return None
    return "NaN" if numpy.isnan(values).any() else "Inf"
