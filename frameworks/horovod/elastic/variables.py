"""Variables of a framework as part of a state: kept as arrays of numpy in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common import basics
from horovod.common.set_agreement import exchange, listed
from horovod.elastic.checkpoint.errors import UnstorableObjectError
from horovod.elastic.handlers import StateHandler

_NAME = "horovod.elastic.variables"


class VariablesHandler(StateHandler):
    """Of an object that has variables. Derive from it for a framework and define the methods that say
    ``NotImplementedError``.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: list[tuple[Any, Any]] = []
        self._is_lent = False
        self.save()

    def all_variables(self) -> list[Any]:
        """The variables that are saved and restored."""
        raise NotImplementedError

    def shared_variables(self) -> list[Any]:
        """Those that all ranks get from the winner, in an order that is equal on all ranks."""
        return self.all_variables()

    def read(self, variables: Sequence[Any]) -> list[Any]:
        """The values, as arrays, which may be the variables' own memory."""
        raise NotImplementedError

    def write(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Makes the values copies of arrays."""
        raise NotImplementedError

    def forget_gradients(self) -> None:
        """Drops gradients that the framework keeps from one backward pass to the next: they belong to a step
        that is not made, and the ranks would not agree on when it is complete.
        """

    def broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        """Gives the variables on all ranks the values that they have on one."""
        raise NotImplementedError

    def save(self) -> None:
        """Into the arrays of the last time, where they fit and nobody else reads them."""
        variables = self.all_variables()
        kept = {} if self._is_lent else {id(variable): array for variable, array in self._saved}
        self._is_lent = False
        values = self.read(variables)
        self._saved = [
            (variable, _copied(value, kept.get(id(variable))))
            for variable, value in zip(variables, values, strict=True)
        ]

    def restore(self) -> None:
        """What has been made since it was saved stays as it is."""
        self.forget_gradients()
        self.write([variable for variable, _ in self._saved], [array for _, array in self._saved])

    def contents(self) -> list[Any]:
        """Of the variables that all ranks share."""
        saved = {id(variable): array for variable, array in self._saved}
        arrays = [saved[id(variable)] for variable in self.shared_variables() if id(variable) in saved]
        foreign = next((array.dtype for array in arrays if array.dtype.kind == "V"), None)
        if foreign is not None:  # numpy would forget it
            raise UnstorableObjectError(f"the {self.title()} has variables of {foreign}, which .npz has not")
        return arrays

    def lend(self) -> None:
        self._is_lent = True

    def load(self, contents: Any) -> None:
        variables = self.shared_variables()
        wanted = [tuple(variable.shape) for variable in variables]
        shapes = [array.shape for array in contents]
        if shapes != wanted:
            raise ValueError(f"the {self.title()} has variables of the shapes {wanted}, not {shapes}")
        self.forget_gradients()
        self.write(variables, contents)

    def sync(self) -> None:
        """ValueError on all ranks where they have different numbers of variables."""
        self.forget_gradients()
        variables = self.shared_variables()
        if basics.size() > 1:
            counts = {rank: str(count) for rank, count in exchange(len(variables), _NAME).items()}
            if len(set(counts.values())) > 1:
                raise ValueError(
                    f"The {self.title()} has different numbers of variables ({listed(counts)}). Build it on "
                    "all ranks before it becomes part of a state."
                )
            self.broadcast(variables, self.winner.rank)

    def reset(self) -> None:
        """The training function begins again: with the first pass of a step."""
        self.forget_gradients()

    def title(self) -> str:
        """What messages call the object."""
        return type(self.value).__name__


def _copied(value: Any, kept: Any) -> Any:
    import numpy  # late: of the framework whose variables these are

    value = numpy.asarray(value)
    if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
        return value.copy()
    numpy.copyto(kept, value)
    return kept
