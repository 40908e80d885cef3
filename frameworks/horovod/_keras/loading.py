"""Loading a saved model, whose optimizer then goes on as a distributed one with the state it has."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from horovod._keras.subclassing import remade


def load_model(
    keras: Any,
    wrap: Callable[[Any], Any],
    filepath: Any,
    custom_optimizers: Iterable[type] | None,
    custom_objects: Mapping[str, Any] | None,
    legacy_opts: bool,
) -> Any:
    """Loads the model by ``keras``, then replaces its optimizer, if it has been compiled, by ``wrap`` of it.

    ``legacy_opts``: optimizers are taken from ``keras.optimizers.legacy``, where this Keras has it.
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    if legacy_opts:
        objects = {**_legacy_optimizers(keras), **objects}
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if isinstance(optimizer, (list, tuple)):
        model.optimizer = [wrap(each) for each in optimizer]
        model.train_function = None
    elif optimizer is not None:
        model.optimizer = wrap(_with_state(optimizer, model, filepath))
        # What Keras has made for, and saves of, the optimizer that was replaced.
        model.train_function = None
        compiled = getattr(getattr(model, "_compile_config", None), "config", None)
        if compiled is not None:
            compiled["optimizer"] = model.optimizer
        if getattr(model, "jit_compile", None) and hasattr(model, "_resolve_auto_jit_compile"):
            model.jit_compile = model._resolve_auto_jit_compile()
    return model


def _with_state(optimizer: Any, model: Any, filepath: Any) -> Any:
    """The optimizer with the state that the file has. Keras 3 builds one from a file of HDF5 for none of the
    variables in the model's layers: it lacks their state, and could not train them.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    lacks = getattr(inner, "built", False) and not getattr(inner, "_trainable_variables", True)
    if not lacks or not model.trainable_variables:
        return optimizer
    whole = remade(optimizer, type(optimizer))
    whole.build(model.trainable_variables)
    values = _saved_state(filepath)
    if [value.shape for value in values] != [tuple(variable.shape) for variable in whole.variables]:
        warnings.warn(
            f"{filepath} has no state that fits the optimizer {optimizer.name!r}: it starts anew",
            stacklevel=4,
        )
        return whole
    for variable, value in zip(whole.variables, values, strict=True):
        variable.assign(value)
    return whole


def _saved_state(filepath: Any) -> list[Any]:
    """The values of an optimizer's variables in a file of HDF5, in their order."""
    import h5py  # Keras has needed it for this file

    with h5py.File(filepath, "r") as file:
        if "optimizer_weights" not in file:
            return []
        group = file["optimizer_weights"]
        parts = [key for key in group.attrs if key.startswith("weight_names")]  # several for very many
        names = [
            name for part in sorted(parts, key=lambda key: (len(key), key)) for name in group.attrs[part]
        ]
        return [group[name][()] for name in names]


def _legacy_optimizers(keras: Any) -> dict[str, type]:
    legacy = keras.optimizers.legacy
    classes = [value for value in vars(legacy).values() if isinstance(value, type)]
    if not any(hasattr(cls, "apply_gradients") for cls in classes):
        raise ValueError(
            "legacy_opts=True needs Keras 2: install tf_keras and set TF_USE_LEGACY_KERAS=1 before importing "
            f"tensorflow; this is Keras {keras.__version__}"
        )
    return {cls.__name__: cls for cls in classes}
