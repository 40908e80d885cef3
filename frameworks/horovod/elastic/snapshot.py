"""Values of any kind, kept as they are now, to be had again as they were."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

from horovod.common.collective.objects import UnpicklableObjectError

# They cannot change, so they are kept as they are.
_CONSTANT = frozenset({bool, bytes, complex, float, int, str, type(None)})


class Snapshot:
    """One copy of named values. What two values have in common they have in common afterwards, too.

    Values are kept as pickle writes them: it copies lists of numbers faster than anything else in Python, and
    hands over arrays of numpy as memory, which is copied into memory that is kept from one ``take`` to the
    next. What pickle does not write, such as a local function, is copied by ``copy.deepcopy`` instead.
    """

    def __init__(self) -> None:
        self._constants: dict[str, Any] = {}
        self._pickled = b""
        self._buffers: list[bytearray] = []
        self._copied: dict[str, Any] = {}

    def take(self, values: Mapping[str, Any]) -> None:
        """Replaces what is kept by ``values``.

        Raises:
            UnpicklableObjectError: one of them cannot be copied, or not be sent to another process; it is
                named. What was kept is kept.
        """
        constants = {name: value for name, value in values.items() if type(value) in _CONSTANT}
        others = {name: value for name, value in values.items() if name not in constants}
        copied = {name: others.pop(name) for name in self._copied if name in others}
        try:
            pickled, buffers = _written(others)
        except Exception:  # pickle raises whatever the values raise
            copied.update(
                {name: others.pop(name) for name in list(others) if not _can_be_written(name, others)}
            )
            pickled, buffers = _written(others)
        self._copied = _copies(copied)
        self._constants = constants
        self._pickled = pickled
        self._buffers = _filled(self._buffers, buffers)

    def values(self) -> dict[str, Any]:
        """What ``take`` was given, as it was then. Every call makes new copies."""
        buffers = [bytearray(buffer) for buffer in self._buffers]
        pickled = pickle.loads(self._pickled, buffers=buffers) if self._pickled else {}
        return {**self._constants, **pickled, **copy.deepcopy(self._copied)}


def _written(values: dict[str, Any]) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    if not values:
        return b"", []
    return pickle.dumps(values, 5, buffer_callback=buffers.append), [buffer.raw() for buffer in buffers]


def _can_be_written(name: str, values: Mapping[str, Any]) -> bool:
    try:
        _written({name: values[name]})
    except Exception:
        return False
    return True


def _filled(kept: list[bytearray], buffers: list[memoryview]) -> list[bytearray]:
    """The buffers, in the memory of ``kept`` where it has the right size."""
    filled = []
    for index, buffer in enumerate(buffers):
        if index < len(kept) and len(kept[index]) == buffer.nbytes:
            kept[index][:] = buffer
            filled.append(kept[index])
        else:
            filled.append(bytearray(buffer))
    return filled


def _copies(values: Mapping[str, Any]) -> dict[str, Any]:
    import cloudpickle  # late: most programs have no such values

    for name, value in values.items():
        try:
            copy.deepcopy(value)
            cloudpickle.dumps(value)  # other ranks get it by this
        except Exception as error:
            raise UnpicklableObjectError(
                f"The attribute {name!r} of the state, a {type(value).__name__}, cannot be saved: {error}. "
                "Keep it outside of the state, or give the state what it is made from."
            ) from error
    return copy.deepcopy(dict(values))
