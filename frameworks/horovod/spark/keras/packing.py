"""Models and other objects of Keras as values that can be pickled, for either package: keras or tf_keras."""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PACKAGES = ("keras", "tf_keras")
_OBJECTS = ("optimizer", "loss", "metrics")
_saving = threading.Lock()  # a CrossValidator has one model trained by several threads


@dataclass(frozen=True)
class Archive:
    """A model in the format ``.keras``."""

    package: str
    backend: str
    data: bytes


@dataclass(frozen=True)
class Config:
    """An optimizer, a loss or a metric that has not been used."""

    cls: Any
    values: Mapping[str, Any]


def package_of(model: Any) -> str:
    """The package that a model belongs to.

    Raises:
        ValueError: it is no model of Keras.
    """
    modules = [cls.__module__.partition(".")[0] for cls in type(model).__mro__]
    for package in PACKAGES:
        if package in modules:
            return package
    raise ValueError(f"the model is a {type(model).__name__}, and none of keras or tf_keras")


def backend_of(package: str) -> str:
    """By what the package computes."""
    if package == "tf_keras":
        return "tensorflow"
    return str(importlib.import_module(package).backend.backend())


def packed(values: dict[str, Any]) -> dict[str, Any]:
    """The params of a stage, to be pickled."""
    found = dict(values)
    if found.get("model") is not None:
        found["model"] = archive(found["model"])
    return {**found, **{name: _config(found[name]) for name in _OBJECTS if name in found}}


def unpacked(values: dict[str, Any]) -> dict[str, Any]:
    """The opposite."""
    found = dict(values)
    if found.get("model") is not None:
        found["model"] = model_of(found["model"], found.get("custom_objects"))
    return {**found, **{name: _object(found[name]) for name in _OBJECTS if name in found}}


def archive(model: Any) -> Archive:
    """The model as bytes, without what it was compiled with: a loss may be a lambda, which Keras saves only
    where it finds the source.
    """
    package = package_of(model)
    with _saving, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        vars(model)["get_compile_config"] = lambda: None
        try:
            model.save(path)
        finally:
            vars(model).pop("get_compile_config", None)
        with open(path, "rb") as file:
            return Archive(package, backend_of(package), file.read())


def model_of(archive: Archive, custom_objects: Mapping[str, Any] | None) -> Any:
    """The model, not compiled."""
    os.environ.setdefault("KERAS_BACKEND", archive.backend)  # of a process that has not imported Keras yet
    keras = importlib.import_module(archive.package)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(archive.data)
        # The pickle that the archive was in could have run any code, too.
        return keras.models.load_model(path, dict(custom_objects or {}), compile=False, safe_mode=False)


def _config(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_config(each) for each in value]
    if isinstance(value, dict):
        return {name: _config(each) for name, each in value.items()}
    has_config = hasattr(value, "get_config") and hasattr(type(value), "from_config")
    return Config(type(value), value.get_config()) if has_config else value


def _object(value: Any) -> Any:
    if isinstance(value, list):
        return [_object(each) for each in value]
    if isinstance(value, dict):
        return {name: _object(each) for name, each in value.items()}
    return value.cls.from_config(dict(value.values)) if isinstance(value, Config) else value
