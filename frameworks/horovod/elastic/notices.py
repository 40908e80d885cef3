"""Tells the states of a training that hosts came or went. The word comes from the launcher, on a thread."""

from __future__ import annotations

import threading
from typing import Protocol

from horovod.bootstrap.start import elastic_membership

REMOVED, ADDED = 1, 2
"""Bits of what is told: hosts were removed, hosts were added."""


class Listener(Protocol):
    """A state; see ``state.State``."""

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Called on another thread than the training's."""


_lock = threading.Lock()
_listeners: list[Listener] = []


def register(listener: Listener) -> None:
    """``listener`` hears of every update from now on."""
    with _lock:
        _listeners.append(listener)
    membership = elastic_membership()
    if membership is not None:
        membership.watch(_tell)


def remove(listener: Listener) -> None:
    """It hears of none any more."""
    with _lock:
        _listeners.remove(listener)


def has_listeners() -> bool:
    """Whether a function that ``hvd.elastic.run`` has wrapped is running."""
    with _lock:
        return bool(_listeners)


def _tell(number: int, added: bool, removed: bool) -> None:
    result = ADDED * added | REMOVED * removed
    with _lock:
        for listener in _listeners:
            listener.on_hosts_updated(number, result)
