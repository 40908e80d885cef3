"""Keeps Keras 3 from compiling a training step by XLA, which knows none of our operations."""

from __future__ import annotations

from typing import Any


def keep_from_compiling(keras: Any, kind: type) -> None:
    """Makes ``jit_compile="auto"``, which Keras takes for True where there is a GPU, mean False for models
    that are compiled with an optimizer of class ``kind``. There is nothing on an optimizer that Keras asks.
    """
    resolve = getattr(keras.Model, "_resolve_auto_jit_compile", None)
    if resolve is None or hasattr(resolve, "keeps_from_compiling"):
        return

    def resolve_auto(model: Any) -> bool:
        return not isinstance(getattr(model, "optimizer", None), kind) and resolve(model)

    resolve_auto.keeps_from_compiling = True  # type: ignore[attr-defined]
    keras.Model._resolve_auto_jit_compile = resolve_auto
