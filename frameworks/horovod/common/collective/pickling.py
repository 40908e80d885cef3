"""Objects as bytes: of Python's plain types by pickle itself, all others by cloudpickle, which takes along
functions and classes of the program, and takes as long to import as a rank takes to start.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class _OtherTypeError(Exception):
    """Not a real number, text, bytes, None, or a tuple, list, dict or set of these."""


class _PlainPickler(pickle.Pickler):
    """Takes plain types only: pickle asks ``reducer_override`` for all others."""

    def reducer_override(self, obj: Any) -> NoReturn:
        raise _OtherTypeError


def dumps(obj: Any) -> bytes:
    """What ``pickle.loads`` makes a copy of ``obj`` from. Raises whatever the object's own code raises."""
    plain = _dumps_plain(obj)
    if plain is not None:
        return plain
    import cloudpickle

    return bytes(cloudpickle.dumps(obj))


def _dumps_plain(obj: Any) -> bytes | None:
    """None: not all of it is of plain types."""
    file = io.BytesIO()
    try:
        _PlainPickler(file, pickle.HIGHEST_PROTOCOL).dump(obj)
    except (_OtherTypeError, RecursionError):
        return None
    return file.getvalue()
