"""What all optimizers that wrap another one have in common, and the names of their parameters."""

from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from horovod.common.training.agreement import Agreement, at_construction
from horovod.common.training.gradient_options import GradientSettings, check_passes, takes_part
from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.step_checks import watch_of

NamedParameters = list[tuple[str, torch.Tensor]]

SUBJECT = "DistributedOptimizer"
"""What ranks call the optimizers that they compare."""

GROUP_NAMES = "param_names"
"""Where a group has the names that its optimizer was given with the parameters."""

_SHARED = ("param_groups", "state")
_NAMELESS = "noname."

_T = TypeVar("_T")


@methods_outside_of_graphs
class WrappedOptimizer:
    """Placed before the wrapped optimizer's class. The instance has the wrapped one's groups and state."""

    backward_passes_per_step: int
    _agreement: Agreement
    _base: type[torch.optim.Optimizer]
    _wrapped: torch.optim.Optimizer
    _wrap_again: Callable[[torch.optim.Optimizer, NamedParameters, int], torch.optim.Optimizer]
    _parameter_names: dict[torch.Tensor, str]  # of all that were in the groups
    _named: dict[torch.Tensor, str]  # by the program, in the groups or not
    _seen: list[torch.Tensor]  # in the groups, at the last look

    def _adopt(
        self,
        optimizer: torch.optim.Optimizer,
        named: NamedParameters | None,
        settings: GradientSettings,
        copied: bool,
    ) -> NamedParameters:
        """Takes over the groups and state of ``optimizer``; returns its parameters with their names."""
        try:
            names = check_names(optimizer.param_groups, named)
        except ValueError as error:  # the others would wait for this rank
            if at_construction() and takes_part(settings.process_set) and not copied:
                Agreement(SUBJECT, settings.process_set).refuse(str(error))
            raise
        own = {key: value for key, value in optimizer.__dict__.items() if key not in _SHARED}
        # A learning rate schedule has put its counter around the step of the wrapped optimizer.
        own.pop("step", None)
        self.__dict__.update(own)
        self._wrapped = optimizer
        self._named = {parameter: name for name, parameter in named or ()}
        self._seen = present_parameters(self.param_groups)
        self._parameter_names = {parameter: names[id(parameter)] for parameter in self._seen}
        return [(self._parameter_names[parameter], parameter) for parameter in self._seen]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are reduced. With op=Adasum they
        accumulate until ``step``, however many are made.

        Args:
            passes: how many, from the next step on.

        Raises:
            ValueError: not at least one.
        """
        check_passes(passes)
        self.backward_passes_per_step = passes

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

    def __getstate__(self) -> dict[str, Any]:
        self._drop_provisional()  # a copy, or what is unpickled, could not tell
        base: Any = super()
        return base.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key in _SHARED:
            if key in state:
                setattr(self._wrapped, key, state[key])
        rest = {key: value for key, value in state.items() if key not in _SHARED}
        super().__setstate__(rest)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters to train, as the wrapped optimizer does; their gradients, or for op=Adasum their
        deltas, are reduced one by one. To add them to the wrapped optimizer is the same. In the next step the
        ranks agree on them.

        Args:
            param_group: as for the wrapped optimizer.
        """
        super().add_param_group(param_group)  # type: ignore[misc]
        self._take_in()

    def _take_in(self) -> None:
        """Sees which parameters have come into the groups."""
        raise NotImplementedError

    def _newcomers(self) -> NamedParameters:
        """The parameters that have come into the groups since the last look, with names: by this optimizer or
        by the wrapped one, whose groups they are too.
        """
        present = present_parameters(self.param_groups)
        if len(present) == len(self._seen) and all(map(operator.is_, present, self._seen)):
            return []
        self._seen = present
        places = positions_of(self.param_groups)
        added = [
            (self._named.get(parameter, places[id(parameter)]), parameter)
            for parameter in present
            if parameter not in self._parameter_names
        ]
        taken = set(self._parameter_names.values())  # also those that are in no group any more
        added = [(f"{name}#{len(taken)}" if name in taken else name, parameter) for name, parameter in added]
        self._parameter_names.update({parameter: name for name, parameter in added})
        if watch := watch_of(self._wrapped):
            watch.add(added)
        return added

    def _drop_provisional(self) -> None:
        """Takes away state that no step of the training has made."""

    def _described(self) -> dict[str, str]:
        """What the ranks compare of the parameters. Where each has its place too: a list made of a set has
        another order in each process, and then one rank's state would be taken for that of another parameter.
        """
        return {
            f"parameter {self._parameter_names[p]!r}": f"{str(p.dtype).removeprefix('torch.')} "
            f"{list(p.shape)}, number {number} of group {index}, requires_grad={p.requires_grad}"
            for index, group in enumerate(self.param_groups)
            for number, p in enumerate(group["params"])
        }

    @classmethod
    def added_methods(cls, base: type[torch.optim.Optimizer]) -> dict[str, Callable[..., Any]]:
        """What an instance has in place of methods of ``base``."""
        return {}

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
        before, after = present_parameters(self.param_groups), present_parameters(plain.param_groups)
        places = positions_of(self.param_groups)  # of those that have just come
        names = [
            (self._parameter_names.get(old, places[id(old)]), new)
            for old, new in zip(before, after, strict=True)
        ]
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
        "__module__": wrapper.__module__,  # libraries look for "horovod" in str(type(optimizer))
        "__qualname__": base.__qualname__,
        **wrapper.added_methods(base),
        "__doc__": base.__doc__,
    }
    distributed: Any = type(base.__name__, (wrapper, base), namespace)
    return distributed.__new__(distributed)


def check_names(param_groups: Iterable[dict[str, Any]], named: NamedParameters | None) -> dict[int, str]:
    """The name of every parameter, by ``id``. Raises ValueError when names are missing or not unique, and for
    parameters that are not made yet.
    """
    positions = positions_of(param_groups)
    _check_made(param_groups)
    if named is None:
        return positions
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
        places = ", ".join(place.removeprefix(_NAMELESS) for place in unnamed)
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Their positions (group.parameter): {places}"
        )
    return names


def _check_made(param_groups: Iterable[dict[str, Any]]) -> None:
    if any(map(torch.nn.parameter.is_lazy, present_parameters(param_groups))):
        raise ValueError(
            "The model has lazy layers, whose parameters have no shape yet: send one batch through it first, "
            "on all ranks, then make the optimizer and call hvd.DistributedOptimizer."
        )


def positions_of(param_groups: Iterable[dict[str, Any]]) -> dict[int, str]:
    """What parameters are called that have no name, by ``id``."""
    return {
        id(parameter): f"{_NAMELESS}{group_index}.{index}"
        for group_index, group in enumerate(param_groups)
        for index, parameter in enumerate(group["params"])
    }


def present_parameters(param_groups: Iterable[dict[str, Any]]) -> list[torch.Tensor]:
    """The parameters of all groups, in their order."""
    return [parameter for group in param_groups for parameter in group["params"]]


def known_names(optimizer: torch.optim.Optimizer) -> list[str] | None:
    """What the program calls the parameters, in the order of the groups; None where it has not said so."""
    parameters = present_parameters(optimizer.param_groups)
    told = getattr(optimizer, "_parameter_names", {})
    names = [told.get(parameter, _NAMELESS) for parameter in parameters]
    if any(name.startswith(_NAMELESS) for name in names):  # torch 2.6 and later keep names themselves
        names = [name for group in optimizer.param_groups for name in group.get(GROUP_NAMES, ())]
    return names if len(names) == len(parameters) else None


def weakly(method: Callable[[], _T]) -> Callable[[], _T | None]:
    """A method that does not keep the optimizer alive; None once it is gone."""
    found = weakref.WeakMethod(method)

    def call() -> _T | None:
        bound = found()
        return None if bound is None else bound()

    return call


def settings_of_copy(
    settings: GradientSettings, names: dict[torch.Tensor, str], copies: NamedParameters
) -> GradientSettings:
    """The settings of a copied optimizer: its groups are those of the copied parameters."""
    if settings.groups is None or isinstance(settings.groups, int):
        return settings
    by_name = dict(copies)
    groups = [[by_name[names[p]] for p in group if names.get(p) in by_name] for group in settings.groups]
    return replace(settings, groups=groups)
