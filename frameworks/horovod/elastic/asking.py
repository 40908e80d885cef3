"""The signal by which the user asks a worker to end at its next commit."""

import signal
from collections.abc import Mapping

from horovod.bootstrap.start_settings import PREEMPTION_VARIABLE

_NAMES = (
    "HUP",
    "PWR",
    "TERM",
    "URG",
    "USR1",
    "USR2",
    "XCPU",
)  # others cannot be caught, or mean something else


def signal_named(text: str) -> signal.Signals:
    """By its name, with or without SIG, or its number. Raises ValueError for one that cannot ask."""
    name = text.strip().upper().removeprefix("SIG")
    if name.isdecimal() and len(name) < 4 and int(name) in set(signal.Signals):
        name = signal.Signals(int(name)).name.removeprefix("SIG")
    if name not in _NAMES:
        raise ValueError(
            f"{text!r} is no signal by which a worker can be asked; take one of {', '.join(_NAMES)}"
        )
    return signal.Signals[f"SIG{name}"]


def chosen_signal(environ: Mapping[str, str]) -> signal.Signals | None:
    """The one of the environment; None: the user has chosen none. Raises ValueError, which names it."""
    text = environ.get(PREEMPTION_VARIABLE, "")
    try:
        return signal_named(text) if text else None
    except ValueError as error:
        raise ValueError(f"{PREEMPTION_VARIABLE}: {error}") from None
