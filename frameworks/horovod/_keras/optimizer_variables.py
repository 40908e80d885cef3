"""The variables of an optimizer, whichever generation of Keras it comes from.

Keras 3 and the later optimizers of Keras 2 keep their state in lists, one element for each model variable;
the earlier ones of Keras 2 ("legacy") in slots that are found by variable and name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """Whether its variables exist; of several, those of all."""
    inners = [innermost(each) for each in each_of(optimizer)]
    return bool(inners) and all(getattr(i, "built", False) or getattr(i, "_built", False) for i in inners)


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
    if isinstance(optimizer, (list, tuple)):
        return [variable for each in optimizer for variable in all_variables(each)]
    variables = optimizer.variables
    variables = list(variables() if callable(variables) else variables)
    rate = innermost(optimizer).learning_rate  # Keras 2 does not list it
    is_listed = any(variable is rate for variable in variables)
    return variables if is_listed or not hasattr(rate, "assign") else [*variables, rate]


def state_of(model: Any, some_variables: Sequence[Any]) -> list[Any]:
    """What the model's optimizer keeps for each of some variables of the model."""
    return [state for each in each_of(model.optimizer) for state in _state_of(each, model, some_variables)]


def each_of(optimizer: Any) -> list[Any]:
    """The optimizers that a model was compiled with: one mostly, none, or a list."""
    if isinstance(optimizer, (list, tuple)):
        return list(optimizer)
    return [] if optimizer is None else [optimizer]


def _state_of(optimizer: Any, model: Any, some_variables: Sequence[Any]) -> list[Any]:
    inner = innermost(optimizer)
    if _is_legacy(inner):
        return [slot for name in inner.get_slot_names() for slot in _slots(inner, some_variables, name)]
    wanted = {id(variable) for variable in some_variables}
    trainable = getattr(inner, "_trainable_variables", None) or model.trainable_variables
    positions = [index for index, variable in enumerate(trainable) if id(variable) in wanted]
    return [states[index] for states in _aligned_lists(inner, len(trainable)) for index in positions]


def local_variables(optimizer: Any) -> list[Any]:
    """The variables of which a distributed optimizer leaves the gradients on their rank."""
    found: dict[int, Any] = {}
    for each in each_of(optimizer):
        for part in (each, innermost(each)):  # Keras 2 has the loss scaling outside
            known = getattr(part, "_local_variables", list)
            found.update((id(variable), variable) for variable in known())
    return list(found.values())


def pending_gradients(optimizer: Any) -> list[Any]:
    """The sums of gradients that wait for their step; each rank has its own."""
    lists = [getattr(innermost(each), "_accumulated_gradients", None) for each in each_of(optimizer)]
    return [pending for each in lists for pending in each or []]


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


def learning_rate(optimizer: Any, evaluated: Callable[[Any], Any]) -> float:
    """Now. ``evaluated``: see ``Backend.result``."""
    rate = innermost(optimizer).learning_rate
    if hasattr(rate, "numpy"):
        rate = evaluated(rate)
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def check_rate_is_settable(optimizer: Any) -> None:
    """Raises ValueError when a LearningRateSchedule of Keras decides about the rate, and for several
    optimizers.
    """
    if isinstance(optimizer, (list, tuple)):
        raise ValueError(
            f"The model is compiled with {len(optimizer)} optimizers, and this callback changes the learning "
            "rate of one. Compile it with one optimizer, or drop the callback and set the rates yourself."
        )
    inner = innermost(optimizer)
    if schedule_of(inner) is not None:
        raise ValueError(
            f"The learning rate of the {type(inner).__name__} optimizer is a LearningRateSchedule, which "
            "callbacks cannot change. Give the optimizer a number as learning_rate, or drop the callback."
        )


def schedule_of(optimizer: Any) -> Any:
    """The schedule or function that decides about the learning rate; None where a number does."""
    rate = vars(optimizer).get("_learning_rate", vars(optimizer).get("_hyper", {}).get("learning_rate"))
    return rate if callable(rate) and not hasattr(rate, "assign") else None


def config_of(optimizer: Any) -> dict[str, Any]:
    """The arguments that make the optimizer again. Its schedule is among them itself: it need not have a
    configuration, nor be known to Keras by name.
    """
    inner = innermost(optimizer)
    schedule = schedule_of(inner)
    if schedule is None:
        return optimizer.get_config()
    attributes = vars(inner)
    at, key = (
        (attributes, "_learning_rate")
        if "_learning_rate" in attributes
        else (attributes["_hyper"], "learning_rate")
    )
    at[key] = 0.0
    try:
        config = optimizer.get_config()
    finally:
        at[key] = schedule
    return {**config, "learning_rate": schedule} if inner is optimizer else config


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
