"""What all optimizers that wrap another one have in common, and the names of their parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from horovod.torch.compiling import methods_outside_of_graphs

NamedParameters = list[tuple[str, torch.Tensor]]

_SHARED = ("param_groups", "state")


@methods_outside_of_graphs
class WrappedOptimizer:
    """Placed before the wrapped optimizer's class. The instance has the wrapped one's groups and state."""

    backward_passes_per_step: int
    _base: type[torch.optim.Optimizer]
    _wrapped: torch.optim.Optimizer
    _wrap_again: Callable[[torch.optim.Optimizer, NamedParameters, int], torch.optim.Optimizer]
    _parameter_names: dict[torch.Tensor, str]

    def _adopt(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    ) -> NamedParameters:
        """Takes over the groups and state of ``optimizer``; returns its parameters with their names."""
        names = check_names(optimizer.param_groups, named_parameters)
        own = {key: value for key, value in optimizer.__dict__.items() if key not in _SHARED}
        # A learning rate schedule has put its counter around the step of the wrapped optimizer.
        own.pop("step", None)
        self.__dict__.update(own)
        self._wrapped = optimizer
        parameters = [(names[id(p)], p) for group in self.param_groups for p in group["params"]]
        self._parameter_names = {parameter: name for name, parameter in parameters}
        return parameters

    # Not copies: loading a state gives an optimizer new ones, and schedules may belong to the wrapped one.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's groups of parameters."""
        return self._wrapped.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._wrapped.param_groups = groups

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state."""
        return self._wrapped.state

    @state.setter
    def state(self, state: Any) -> None:
        self._wrapped.state = state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key in _SHARED:
            if key in state:
                setattr(self._wrapped, key, state[key])
        rest = {key: value for key, value in state.items() if key not in _SHARED}
        super().__setstate__(rest)  # type: ignore[misc]

    def _added(self, param_group: dict[str, Any]) -> NamedParameters:
        """Adds a group to the wrapped optimizer's; returns its parameters with names."""
        super().add_param_group(param_group)  # type: ignore[misc]
        index = len(self.param_groups) - 1
        parameters = self.param_groups[index]["params"]
        added = [(f"added.{index}.{position}", parameter) for position, parameter in enumerate(parameters)]
        self._parameter_names.update({parameter: name for name, parameter in added})
        return added

    def _note_step(self) -> None:
        """Tells schedules of the wrapped optimizer that a step was made."""
        self._wrapped.__dict__["_opt_called"] = True

    @staticmethod
    def find_duplicates(lst: Iterable[Any]) -> set[Any]:
        """The items that occur more than once."""
        seen: set[Any] = set()
        return {item for item in lst if item in seen or seen.add(item)}  # type: ignore[func-returns-value]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the wrapped optimizer that is distributed too. Copy it together with its model, as in
        ``copy.deepcopy((model, optimizer))``, so that it trains the copied parameters.
        """
        import copy

        plain = _bare(self._base)
        memo[id(self._wrapped)] = plain
        state: Any = self.__getstate__()
        plain.__setstate__(copy.deepcopy(state, memo))
        before = [p for group in self.param_groups for p in group["params"]]
        after = [p for group in plain.param_groups for p in group["params"]]
        names = [(self._parameter_names[old], new) for old, new in zip(before, after, strict=True)]
        copied = memo[id(self)] = self._wrap_again(plain, names, self.backward_passes_per_step)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        warnings.warn(
            f"A DistributedOptimizer is pickled as the {self._base.__name__} that it wraps: hooks on "
            "parameters belong to a process. Save optimizer.state_dict() instead, or wrap it again after "
            "loading.",
            stacklevel=3,
        )
        return (_bare, (self._base,), self.__getstate__())


def _bare(base: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """An instance that unpickling then gives its state."""
    made: Any = base
    return made.__new__(made)


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


def check_names(
    param_groups: Iterable[dict[str, Any]], named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[int, str]:
    """The name of every parameter, by ``id``. Raises ValueError when names are missing or not unique."""
    positions = {
        id(parameter): f"noname.{group_index}.{index}"
        for group_index, group in enumerate(param_groups)
        for index, parameter in enumerate(group["params"])
    }
    if named_parameters is None:
        return positions
    named = list(named_parameters)
    if any(not isinstance(item, tuple) for item in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    labels = [name for name, _ in named]
    duplicates = (
        sorted({name for name in labels if labels.count(name) > 1}) if len(set(labels)) < len(labels) else []
    )
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    names = {id(parameter): name for name, parameter in named}
    unnamed = [place for key, place in positions.items() if key not in names]
    if unnamed:
        places = ", ".join(place.removeprefix("noname.") for place in unnamed)
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Their positions (group.parameter): {places}"
        )
    return names


def described(parameters: NamedParameters) -> dict[str, str]:
    """What the ranks compare of parameters, by label."""
    return {
        f"parameter {name!r}": f"{str(p.dtype).removeprefix('torch.')} {list(p.shape)}, "
        + f"requires_grad={p.requires_grad}"
        for name, p in parameters
    }
