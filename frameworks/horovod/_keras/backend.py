"""What the Keras parts need from the framework that computes: a handful of operations on its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.gradient_options import Groups
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average


@dataclass(frozen=True, eq=False)
class GradientSettings:
    """How the gradients of one optimizer are reduced; the arguments of ``DistributedOptimizer``."""

    name: str = "DistributedOptimizer"
    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] | None = NoneCompressor
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    # On which the ranks must agree, too, and which others carry out.
    passes: int = 1
    average_passes: bool = False
    # Whether the optimizer scales the loss, and so copes with gradients that are not finite.
    loss_is_scaled: bool = False


class Backend(Protocol):
    """One instance for each framework; all state is the job's."""

    @property
    def name(self) -> str:
        """What ``keras.backend.backend()`` says: "tensorflow" or "torch"."""
        ...

    def reduce_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Any], settings: GradientSettings
    ) -> list[Any]:
        """The gradients of the whole job, in the same order; None stays None. ``variables`` are those that
        the gradients belong to. Runs wherever the framework calls the optimizer: eagerly or in a graph. On a
        rank that has nobody to reduce with, the gradients are returned as they are.
        """
        ...

    def scale(self, gradient: Any, factor: float) -> Any:
        """The gradient, which may be sparse, times ``factor``."""
        ...

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Gives all variables, those of models and of optimizers, the values that they have on
        ``root_rank``. Names do not matter, the order does; call it outside of graphs.
        """
        ...

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The average of each number over the ranks. All ranks give the same keys; they travel sorted."""
        ...

    def rank(self) -> int:
        """This process's number in the job."""
        ...

    def size(self) -> int:
        """How many processes the job has."""
        ...
