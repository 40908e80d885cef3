"""Loading a saved model, whose optimizer then goes on as a distributed one with the state it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


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
    if optimizer is not None:
        model.optimizer = wrap(optimizer)
        # What Keras has made for, and saves of, the optimizer that was replaced.
        model.train_function = None
        compiled = getattr(getattr(model, "_compile_config", None), "config", None)
        if compiled is not None:
            compiled["optimizer"] = model.optimizer
        if getattr(model, "jit_compile", None) and hasattr(model, "_resolve_auto_jit_compile"):
            model.jit_compile = model._resolve_auto_jit_compile()
    return model


def _legacy_optimizers(keras: Any) -> dict[str, type]:
    legacy = keras.optimizers.legacy
    classes = [value for value in vars(legacy).values() if isinstance(value, type)]
    if not any(hasattr(cls, "apply_gradients") for cls in classes):
        raise ValueError(
            "legacy_opts=True needs Keras 2: install tf_keras and set TF_USE_LEGACY_KERAS=1 before importing "
            f"tensorflow; this is Keras {keras.__version__}"
        )
    return {cls.__name__: cls for cls in classes}
