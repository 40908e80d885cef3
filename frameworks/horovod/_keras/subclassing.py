"""Optimizers of Keras 3 made anew as instances of a subclass, with the state that they have."""

from __future__ import annotations

from typing import Any

from horovod._keras.optimizer_variables import config_of


def subclass_of(part: type, optimizer: Any, keras: Any, **namespace: Any) -> Any:
    """A class with the name of the optimizer's, whose methods come from ``part`` first.

    A model is saved as if it had the original class, so whoever loads it needs nothing of this library.
    """
    base = type(optimizer)
    own = {
        "__module__": _public_module(base, keras),
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    metaclass: Any = type(base)
    made = metaclass(base.__name__, (part, base), {**own, **namespace})
    save_as(base, made, keras)
    return made


def save_as(base: type, made: type, keras: Any) -> None:
    """Makes instances of ``made`` be saved under the name that ``base`` has been registered by, if it has
    been; the name goes on to stand for ``base``.
    """
    package, separator, name = keras.saving.get_registered_name(base).partition(">")
    if separator:
        keras.saving.register_keras_serializable(package, name)(made)
        keras.saving.register_keras_serializable(package, name)(base)


def _public_module(base: type, keras: Any) -> str:
    """Where Keras finds the class again; its classes for one backend are found under the common name."""
    public = getattr(keras.optimizers, base.__name__, None)
    own = base.__module__.partition(".")[0] == keras.__name__.partition(".")[0]
    known = own and isinstance(public, type) and issubclass(base, public)
    return "keras.optimizers" if known else base.__module__


def remade(optimizer: Any, made: Any) -> Any:
    """An instance of the class ``made`` with the configuration of ``optimizer``."""
    copy = made.from_config(config_of(optimizer))
    for name, value in vars(optimizer).items():
        if name.startswith("_exclude_from_weight_decay"):
            setattr(copy, name, value)
    return copy


def carry_over(optimizer: Any, copy: Any, keras: Any) -> None:
    """Gives ``copy`` the variables of ``optimizer``: counts, rate and, where it has been built, the rest."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.built and not copy.built:
        copy.build(list(inner._trainable_variables))
    if inner is not optimizer:
        _assign(inner.variables, copy.inner_optimizer.variables, keras)
        if not optimizer.built:
            return
    _assign(optimizer.variables, copy.variables, keras)


def _assign(values: list[Any], variables: list[Any], keras: Any) -> None:
    """In memory of their own: on JAX both would have one array, which the first step of either deletes."""
    for value, variable in zip(values, variables, strict=True):
        variable.assign(keras.ops.copy(value))
