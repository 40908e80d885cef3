"""The names that programs import from here; they are those of ``horovod.elastic``."""

from __future__ import annotations

import importlib
from typing import Any

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401

_MODULES = {"ObjectState": "state", "State": "state", "run_fn": "run"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # late: this layer does not depend on that one
        return getattr(importlib.import_module(f"horovod.elastic.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_MODULES, "HorovodInternalError", "HostsUpdatedInterrupt"])
