"""Which adapters can be imported here, found out without importing a framework: that would take seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Adapter:
    """What ``import horovod.<package>`` finds, or what it lacks."""

    framework: str
    package: str
    version: str | None  # of the framework
    location: str | None
    lacks: str | None  # None: the import works

    @property
    def available(self) -> bool:
        """Whether the import works."""
        return self.lacks is None


@dataclass(frozen=True)
class _Needs:
    framework: str
    package: str  # of horovod
    module: str
    distributions: tuple[str, ...]
    oldest: str
    operations: bool = False  # a compiled file of its own
    more: Callable[[], str | None] = lambda: None


def _numpy_for_mxnet() -> str | None:
    numpy = _version(("numpy",))
    if numpy is None:
        return "numpy is not installed"
    return f"MXNet does not work with numpy {numpy}; install 'numpy<2'" if _at_least(numpy, "2") else None


def _framework_of_keras() -> str | None:
    """Keras is installed without the framework by which it computes."""
    name = os.environ.get("KERAS_BACKEND") or _configured_for_keras()
    if _location(name) is not None:
        return None
    return f"keras computes by {name}, which is not installed; install it, or set KERAS_BACKEND=torch"


def _configured_for_keras() -> str:
    """As Keras itself looks it up."""
    try:
        folder = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
        return str(json.loads((folder / "keras.json").read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, LookupError, TypeError, RuntimeError):
        return "tensorflow"


_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly")
_ADAPTERS = (
    _Needs("TensorFlow", "tensorflow", "tensorflow", _TENSORFLOW, "2.13", operations=True),
    _Needs("PyTorch", "torch", "torch", ("torch",), "2.1"),
    _Needs("MXNet", "mxnet", "mxnet", ("mxnet",), "1.9", operations=True, more=_numpy_for_mxnet),
    _Needs("Keras", "keras", "keras", ("keras",), "2.13", more=_framework_of_keras),
    _Needs("JAX", "jax", "jax", ("jax",), "0.5"),
)


def adapters() -> list[Adapter]:
    """All of them, in the order of the report."""
    return [_look_at(needs) for needs in _ADAPTERS]


def core_location() -> str | None:
    """The compiled core, without which nothing works."""
    return _location("horovod._core")


def _look_at(needs: _Needs) -> Adapter:
    version, location = _version(needs.distributions), _location(needs.module)
    return Adapter(needs.framework, needs.package, version, location, _lack(needs, version, location))


def _lack(needs: _Needs, version: str | None, location: str | None) -> str | None:
    if core_location() is None:
        return "the compiled core of horovod is missing"
    if location is None:
        return f"{needs.module} is not installed"
    adapter = _location(f"horovod.{needs.package}")
    if adapter is None:
        return f"horovod.{needs.package} is missing"
    if version is not None and not _at_least(version, needs.oldest):
        return f"{needs.module} {version} is too old, {needs.oldest} is needed"
    if needs.operations and not Path(adapter).with_name("_ops.so").exists():
        return f"horovod was built without the operations for {needs.framework}"
    return needs.more()


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _at_least(version: str, oldest: str) -> bool:
    try:
        return Version(version) >= Version(oldest)
    except InvalidVersion:  # somebody's own build
        return True


def _location(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None
