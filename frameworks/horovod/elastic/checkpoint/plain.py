"""Python values as JSON and back, exactly.

What JSON has no word for becomes an object of one key that begins with ``$``: ``{"$tuple": [1, 2]}``. Tensors
are set aside under a name, ``{"$tensor": name}``. A dictionary whose own keys begin so, or are not text, is
written as pairs.
"""

from __future__ import annotations

import base64
import collections
import math
import pickle
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from horovod.bootstrap.text import escaped
from horovod.elastic.checkpoint.errors import CheckpointError, UnstorableObjectError

_MARK = "$"
_LARGEST = 1 << 63
_DTYPE = re.compile(r"[<>|=][biufcmM]\d{1,2}(\[\w{1,8}\])?")
_ATOMS = (type(None), bool, str)

SetAside = Callable[[str, Any], "str | None"]
"""Of a path and a value: the name under which a tensor is kept; None for what is no tensor."""


def encode(value: Any, path: str, set_aside: SetAside, allow_pickle: bool = False) -> Any:
    """``value`` as ``json.dumps`` takes it; shares nothing with ``value`` that can change.

    Args:
        value: any.
        path: its name in errors and in the names of tensors, such as ``optimizer``.
        set_aside: see ``SetAside``.
        allow_pickle: whether to pickle what has no other form.

    Raises:
        UnstorableObjectError: some part has no form; its path is in the text.
    """
    try:
        return _Encoder(set_aside, allow_pickle).encode(value, path)
    except RecursionError:
        raise UnstorableObjectError(
            f"{escaped(path)} cannot be written to a checkpoint: it contains itself, or is nested too deeply"
        ) from None


class _Encoder:
    def __init__(self, set_aside: SetAside, allow_pickle: bool) -> None:
        self._set_aside = set_aside
        self._allow_pickle = allow_pickle
        self._forms: dict[type, Callable[[Any, str], Any]] = {
            int: lambda value, path: value if -_LARGEST <= value < _LARGEST else {"$int": hex(value)},
            float: lambda value, path: value if math.isfinite(value) else {"$float": repr(value)},
            complex: lambda value, path: {
                "$complex": [self.encode(value.real, path), self.encode(value.imag, path)]
            },
            bytes: lambda value, path: {"$bytes": _text(value)},
            bytearray: lambda value, path: {"$bytearray": _text(value)},
            range: lambda value, path: {"$range": [value.start, value.stop, value.step]},
            list: self._items,
            tuple: lambda value, path: {"$tuple": self._items(value, path)},
            set: lambda value, path: {"$set": self._items(value, path)},
            frozenset: lambda value, path: {"$frozenset": self._items(value, path)},
            collections.deque: lambda value, path: {"$deque": [self._items(value, path), value.maxlen]},
            dict: self._dict,
            collections.OrderedDict: lambda value, path: {"$ordered": self._pairs(value, path)},
            collections.Counter: lambda value, path: {"$counter": self._pairs(value, path)},
        }

    def encode(self, value: Any, path: str) -> Any:
        if type(value) in _ATOMS:
            return value
        form = self._forms.get(type(value))
        if form is not None:
            return form(value, path)
        name = self._set_aside(path, value)
        if name is not None:
            return {"$tensor": name}
        scalar = _scalar(value)
        if scalar is not None:
            return {"$scalar": scalar}
        if self._allow_pickle:
            return {"$pickle": _text(_pickled(value, path))}
        raise UnstorableObjectError(
            f"{escaped(path)} of the state, a {type(value).__name__}, cannot be written to a checkpoint: it "
            "is neither text, a number, a tensor, nor a list, tuple, set or dictionary of them. Keep it "
            "outside of the state, or allow pickle: allow_pickle=True, or HOROVOD_CHECKPOINT_PICKLE=1"
        )

    def _items(self, value: Any, path: str) -> list[Any]:
        kinds = set(map(type, value))
        if kinds <= {str, bool, type(None)} or (kinds == {float} and all(map(math.isfinite, value))):
            return list(value)
        if kinds == {int} and -_LARGEST <= min(value) and max(value) < _LARGEST:
            return list(value)
        return [self.encode(item, f"{path}/{index}") for index, item in enumerate(value)]

    def _dict(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str and not key.startswith(_MARK) for key in value):
            return {key: self.encode(item, f"{path}/{key}") for key, item in value.items()}
        return {"$dict": self._pairs(value, path)}

    def _pairs(self, value: Mapping[Any, Any], path: str) -> list[Any]:
        return [
            [self.encode(key, f"{path}: a key"), self.encode(item, f"{path}/{key}")]
            for key, item in value.items()
        ]


def decode(value: Any, tensors: Mapping[str, Any], allow_pickle: bool = False) -> Any:
    """What ``encode`` was given.

    Args:
        value: what it returned, as ``json.loads`` returns it.
        tensors: what was set aside, by name.
        allow_pickle: whether to unpickle.

    Raises:
        CheckpointError: it is pickled and may not be, or is nothing that ``encode`` returns.
    """
    try:
        return _Decoder(tensors, allow_pickle).decode(value)
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"not a value of a checkpoint: {type(error).__name__}: {error}") from None


class _Decoder:
    def __init__(self, tensors: Mapping[str, Any], allow_pickle: bool) -> None:
        self._tensors = tensors
        self._allow_pickle = allow_pickle
        self._forms: dict[str, Callable[[Any], Any]] = {
            "$int": lambda told: int(told, 16),
            "$float": float,
            "$complex": lambda told: complex(*map(self.decode, told)),
            "$bytes": _bytes,
            "$bytearray": lambda told: bytearray(_bytes(told)),
            "$range": lambda told: range(*told),
            "$tuple": lambda told: tuple(map(self.decode, told)),
            "$set": lambda told: set(map(self.decode, told)),
            "$frozenset": lambda told: frozenset(map(self.decode, told)),
            "$deque": lambda told: collections.deque(map(self.decode, told[0]), told[1]),
            "$dict": lambda told: dict(self._pairs(told)),
            "$ordered": lambda told: collections.OrderedDict(self._pairs(told)),
            "$counter": lambda told: collections.Counter(dict(self._pairs(told))),
            "$tensor": lambda told: self._tensors[told],
            "$scalar": _unscalar,
            "$pickle": self._unpickled,
        }

    def decode(self, value: Any) -> Any:
        if type(value) is list:
            return [self.decode(item) for item in value]
        if type(value) is not dict:
            return value
        if len(value) == 1:
            ((key, told),) = value.items()
            if key.startswith(_MARK):
                return self._forms[key](told)
        return {key: self.decode(item) for key, item in value.items()}

    def _pairs(self, told: Any) -> list[tuple[Any, Any]]:
        return [(self.decode(key), self.decode(item)) for key, item in told]

    def _unpickled(self, told: str) -> Any:
        if not self._allow_pickle:
            raise CheckpointError(
                "it contains pickled objects, and to unpickle can run any program: if you trust who wrote "
                "it, allow it: allow_pickle=True, or HOROVOD_CHECKPOINT_PICKLE=1"
            )
        return pickle.loads(_bytes(told))


def _pickled(value: Any, path: str) -> bytes:
    import cloudpickle  # late: most programs have no such values

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # pickle raises whatever the value raises
        raise UnstorableObjectError(f"{escaped(path)} of the state cannot be pickled: {error}") from error


def _scalar(value: Any) -> list[str] | None:
    """A number of numpy: its dtype and its bytes."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic) or not _DTYPE.fullmatch(value.dtype.str):
        return None
    return [value.dtype.str, _text(value.tobytes())]


def _unscalar(told: Any) -> Any:
    import numpy  # late: most programs have none

    dtype, data = told
    if not _DTYPE.fullmatch(dtype):
        raise ValueError(f"{dtype!r} is no dtype of a number")
    return numpy.frombuffer(_bytes(data), dtype)[0]


def _text(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
