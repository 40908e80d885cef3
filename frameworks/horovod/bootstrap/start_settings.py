"""The settings of a start: how the ranks reach each other, and how long they wait for each other."""

from collections.abc import Mapping

from .text import shown

START_TIMEOUT_VARIABLE = "HOROVOD_START_TIMEOUT"
_TRANSPORTS = ("auto", "shm", "tcp")
_DEFAULT_START_TIMEOUT = 30.0


def wiring(environment: Mapping[str, str]) -> str:
    """Raises ValueError for what is none."""
    name = environment.get("HOROVOD_TRANSPORT") or "auto"
    if name not in _TRANSPORTS:
        raise ValueError(f"HOROVOD_TRANSPORT='{shown(name)}': expected one of {', '.join(_TRANSPORTS)}")
    return name


def start_timeout(environment: Mapping[str, str]) -> float:
    """In seconds. Raises ValueError for what is no number."""
    from horovod import _core

    text = environment.get(START_TIMEOUT_VARIABLE, "")
    _core.check_setting(START_TIMEOUT_VARIABLE, text)
    return float(text or _DEFAULT_START_TIMEOUT)
