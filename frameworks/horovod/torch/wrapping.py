"""What all optimizers that wrap another one have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from horovod.torch.grouping import NamedParameters, check_names


class WrappedOptimizer:
    """Placed before the wrapped optimizer's class. The instance shares the wrapped one's groups and state."""

    _base: type[torch.optim.Optimizer]
    _wrapped: torch.optim.Optimizer
    param_groups: list[dict[str, Any]]

    def _adopt(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    ) -> NamedParameters:
        """Takes over the groups and state of ``optimizer``; returns its parameters with their names."""
        names = check_names(optimizer.param_groups, named_parameters)
        self.__dict__.update(optimizer.__dict__)
        # A learning rate schedule has put its counter around the step of the wrapped optimizer.
        self.__dict__.pop("step", None)
        self._wrapped = optimizer
        return [(names[id(p)], p) for group in self.param_groups for p in group["params"]]

    def _added(self, param_group: dict[str, Any]) -> NamedParameters:
        """Adds a group to the wrapped optimizer's; returns its parameters with names."""
        super().add_param_group(param_group)  # type: ignore[misc]
        index = len(self.param_groups) - 1
        parameters = self.param_groups[index]["params"]
        return [(f"added.{index}.{position}", parameter) for position, parameter in enumerate(parameters)]

    def _note_step(self) -> None:
        """Tells schedules of the wrapped optimizer that a step was made."""
        self._wrapped.__dict__["_opt_called"] = True

    @staticmethod
    def find_duplicates(lst: Iterable[Any]) -> set[Any]:
        """The items that occur more than once."""
        seen: set[Any] = set()
        return {item for item in lst if item in seen or seen.add(item)}  # type: ignore[func-returns-value]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy or a pickle is the wrapped optimizer: hooks belong to this process's parameters. Wrap it
        again.
        """
        return (_bare, (self._base,), self.__getstate__())


def _bare(base: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """An instance that unpickling then gives its state."""
    return base.__new__(base)


def subclass_of(wrapper: type[WrappedOptimizer], optimizer: torch.optim.Optimizer) -> Any:
    """An instance, not initialised, of a class with the name of the optimizer's and the methods of
    ``wrapper``.
    """
    base = type(optimizer)
    namespace = {
        "_base": base,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    distributed: Any = type(base.__name__, (wrapper, base), namespace)
    return distributed.__new__(distributed)
