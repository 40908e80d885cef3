"""Averaging many gradients in place, alone or in groups: what optimizer and trainer have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from horovod.common.agreement import StepAgreement
from horovod.common.gradient_options import settings_facts, takes_part
from horovod.common.native import ALLREDUCE
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import Average
from horovod.common.step_checks import of_steps
from horovod.common.util import split_list
from horovod.mxnet.engine import Options
from horovod.mxnet.reductions import overwrite

_Described = tuple[tuple[int | str, str, tuple[int, ...]], ...]


class GradientAverage:
    """How the gradients of one optimizer are averaged.

    ``predivide_factor``: what part of the division comes before the sum. ``num_groups``: how many groups of
    neighbours travel as one operation each; 0 = each gradient alone. ``prefix``: of the names of operations;
    None: a number that all ranks share tells the gradients of several optimizers apart, which all number
    theirs from 0 and whose operations may be under way at once. ``subject``: of what it is, for errors.
    """

    def __init__(
        self,
        subject: str,
        prefix: str | None,
        predivide_factor: float,
        num_groups: int,
        process_set: ProcessSet,
        compressor: Any,
    ) -> None:
        if predivide_factor <= 0:
            raise ValueError(f"gradient_predivide_factor must be positive, not {predivide_factor}")
        if num_groups < 0:
            raise ValueError(f"num_groups must not be negative, but is {num_groups}")
        self.process_set = process_set
        self._prefix = prefix
        self._num_groups = num_groups
        self._compressor = compressor
        self._factors = (1.0 / predivide_factor, predivide_factor)
        self._subject = subject
        self._agreement = StepAgreement(subject, process_set)
        self._settings = settings_facts(Average, compressor, predivide_factor, num_groups=num_groups)

    def average(self, gradients: Sequence[tuple[int | str, Any]], weights: Sequence[tuple[str, Any]]) -> None:
        """Overwrites numbered gradients with their averages over the ranks. Low numbers go first: the next
        forward pass needs them first. What was not averaged before is compared first, so all ranks must come
        to it together: TensorMismatchError where they differ. ``weights``: what the gradients belong to, with
        the names that messages give them.

        Raises NonfiniteGradientError and ParameterDivergenceError where the environment asks for it; see
        ``common.step_checks``.
        """
        if not gradients or not takes_part(self.process_set):
            return
        described = tuple(
            (number, numpy.dtype(gradient.dtype).name, gradient.shape) for number, gradient in gradients
        )
        self._agree(described)
        self._check(described, [gradient for _, gradient in gradients], weights)
        parts = split_list(gradients, self._num_groups) if self._num_groups else [[one] for one in gradients]
        for part in parts:
            if part:
                self._average_together(part)

    def _agree(self, described: _Described) -> None:
        self._agreement.once(
            described,
            lambda: {
                **self._settings,
                **{f"gradient {number!r}": f"{dtype} {shape}" for number, dtype, shape in described},
            },
        )

    def _check(
        self, described: _Described, gradients: Sequence[Any], weights: Sequence[tuple[str, Any]]
    ) -> None:
        checks = of_steps(self.process_set, self._agreement.numbered(self._subject), described)
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
        sent = [self._compressor.compress(gradient) for _, gradient in part]
        options = Options(name, self.process_set, priority, Average, *self._factors, urgent=False)
        overwrite(ALLREDUCE, [tensor for tensor, _ in sent], options)
        for (_, gradient), (tensor, context) in zip(part, sent, strict=True):
            if tensor is not gradient:
                gradient[:] = self._compressor.decompress(tensor, context)


def _kind(values: Any) -> str | None:
    if numpy.isfinite(values).all():
        return None
    return "NaN" if numpy.isnan(values).any() else "Inf"
