"""The variables of an optimizer, whichever generation of Keras it comes from.

Keras 3 and the later optimizers of Keras 2 keep their state in lists, one element for each model variable;
the earlier ones of Keras 2 ("legacy") in slots that are found by variable and name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Where the optimizers whose velocity contains the learning rate keep it.
_VELOCITIES = {"SGD": "momentums", "RMSprop": "_momentums"}
_LEGACY_VELOCITY = "momentum"


def innermost(optimizer: Any) -> Any:
    """The optimizer below any wrapper for loss scaling."""
    while (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        optimizer = inner
    return optimizer


def is_built(optimizer: Any) -> bool:
    """Whether its variables exist."""
    inner = innermost(optimizer)
    return bool(getattr(inner, "built", False) or getattr(inner, "_built", False))


def build(optimizer: Any, trainable_variables: Sequence[Any]) -> None:
    """Makes the variables of an optimizer that has none yet, as its first step would."""
    if is_built(optimizer):
        return
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(list(trainable_variables))
    else:
        optimizer.build(list(trainable_variables))


def all_variables(optimizer: Any) -> list[Any]:
    """Those that exist: counts, rates, slots; with the state of a wrapper for loss scaling."""
    if optimizer is None:
        return []
    variables = optimizer.variables
    variables = list(variables() if callable(variables) else variables)
    rate = innermost(optimizer).learning_rate  # Keras 2 does not list it
    is_listed = any(variable is rate for variable in variables)
    return variables if is_listed or not hasattr(rate, "assign") else [*variables, rate]


def state_of(model: Any, some_variables: Sequence[Any]) -> list[Any]:
    """What the model's optimizer keeps for each of some variables of the model."""
    inner = innermost(model.optimizer)
    if _is_legacy(inner):
        return [slot for name in inner.get_slot_names() for slot in _slots(inner, some_variables, name)]
    wanted = {id(variable) for variable in some_variables}
    trainable = getattr(inner, "_trainable_variables", None) or model.trainable_variables
    positions = [index for index, variable in enumerate(trainable) if id(variable) in wanted]
    return [states[index] for states in _aligned_lists(inner, len(trainable)) for index in positions]


def local_variables(optimizer: Any) -> list[Any]:
    """The variables of which a distributed optimizer leaves the gradients on their rank."""
    for each in (optimizer, innermost(optimizer)):  # Keras 2 has the loss scaling outside
        known = getattr(each, "_local_variables", None)
        if callable(known):
            return list(known())
    return []


def pending_gradients(optimizer: Any) -> list[Any]:
    """The sums of gradients that wait for their step; each rank has its own."""
    return list(getattr(innermost(optimizer), "_accumulated_gradients", None) or [])


def forget_passes(optimizer: Any) -> None:
    """Drops the gradients that a distributed optimizer has added up for a step that is not made."""
    for each in (optimizer, innermost(optimizer)):  # Keras 2 has the loss scaling outside
        accumulation = getattr(each, "_agg_helper", None)
        if accumulation is not None:
            accumulation.forget()


def velocities(model: Any) -> list[Any]:
    """The variables v = momentum * v - rate * gradient; empty for optimizers that have none such."""
    inner = innermost(model.optimizer)
    kind = next((base.__name__ for base in type(inner).__mro__ if base.__name__ in _VELOCITIES), None)
    if kind is None:
        return []
    if _is_legacy(inner):
        return _slots(inner, model.trainable_variables, _LEGACY_VELOCITY)
    return [state for state in getattr(inner, _VELOCITIES[kind], None) or [] if state is not None]


def learning_rate(optimizer: Any) -> float:
    """Now."""
    rate = innermost(optimizer).learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def check_rate_is_settable(optimizer: Any) -> None:
    """Raises ValueError when a LearningRateSchedule of Keras decides about the rate."""
    inner = innermost(optimizer)
    if isinstance(inner.get_config().get("learning_rate"), dict):
        raise ValueError(
            f"The learning rate of the {type(inner).__name__} optimizer is a LearningRateSchedule, which "
            "callbacks cannot change. Give the optimizer a number as learning_rate, or drop the callback."
        )


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """From the next step on, also in compiled functions."""
    innermost(optimizer).learning_rate = rate


def _is_legacy(optimizer: Any) -> bool:
    return hasattr(optimizer, "get_slot_names")


def _slots(optimizer: Any, variables: Sequence[Any], name: str) -> list[Any]:
    found = []
    for variable in variables:
        try:
            found.append(optimizer.get_slot(variable, name))
        except KeyError:  # the variable has not been trained
            continue
    return found


def _aligned_lists(optimizer: Any, length: int) -> Iterator[list[Any]]:
    """The lists that have an element for each trainable variable."""
    for name, value in vars(optimizer).items():
        if name not in {"_variables", "_trainable_variables"} and isinstance(value, list):
            if len(value) == length and all(hasattr(element, "assign") for element in value):
                yield value
