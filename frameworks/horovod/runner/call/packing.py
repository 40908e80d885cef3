"""What travels between the caller and the ranks, as bytes: a call, what it returned, what it raised.

Each is a header in JSON and a pickle behind it. Pickles are read only where the bytes come from a rank or the
caller of the same job: through an inherited descriptor, or under the MAC of a link to the store.
"""

import io
import json
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import CodeType, FunctionType
from typing import Any, BinaryIO

from horovod.bootstrap.paths import absolute
from horovod.bootstrap.tracebacks import formatted

from . import code_objects
from .code_objects import Sources

_LENGTH = struct.Struct("!I")
_LONGEST_TEXT = 1 << 16  # characters of an exception; the exception itself travels whole


class RemoteTraceback(Exception):
    """The traceback of a rank, as text; the cause of what the rank raised."""

    def __init__(self, rank: int, process: str, text: str) -> None:
        super().__init__(rank, process, text)
        self.rank = rank
        self.process = process  # host and pid
        self.text = text

    def __str__(self) -> str:
        return f"on rank {self.rank} ({self.process}):\n\n{self.text}"


@dataclass(frozen=True)
class Surroundings:
    """What the caller's Python has that a function may count on."""

    python: str  # its version: code of another one cannot be run
    prefix: str
    path: list[str]
    arguments: list[str]

    def enter(self) -> None:
        """Makes this process resemble the caller. Raises RuntimeError where it cannot."""
        if self.python != _python():
            raise RuntimeError(
                f"this rank runs Python {_python()} ({sys.executable}) and the caller of horovod.run runs "
                f"{self.python}: a function can be sent to the same Python only. Look at executable="
            )
        sys.argv[:] = self.arguments
        sys.path[:] = _merged(self.path, sys.path, self.prefix == sys.prefix)


def surroundings() -> Surroundings:
    """Those of this process."""
    return Surroundings(_python(), sys.prefix, [absolute(p) for p in sys.path], list(sys.argv))


def write_call(
    file: BinaryIO, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Writes a call. Raises ValueError when it cannot be pickled."""
    file.write(_headed(asdict(surroundings())))
    try:
        _write_with_names(file, (function, tuple(arguments), dict(keywords)))
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"horovod.run cannot pickle the function or its arguments: {error}. Make within the function "
            "what cannot be sent, such as open files, locks and connections"
        ) from error
    file.flush()


def _write_with_names(file: BinaryIO, value: Any) -> None:
    """Behind the value stand what it has of the caller's program, by name, which shares its objects, and the
    sources of its functions.
    """
    import cloudpickle

    program = vars(sys.modules["__main__"])
    named: dict[str, Any] = {}
    sources = Sources()
    tables = cloudpickle.CloudPickler.dispatch_table

    class Pickler(cloudpickle.CloudPickler):
        dispatch_table = tables.new_child({CodeType: sources.reducer(tables[CodeType])})

        def reducer_override(self, obj: Any) -> Any:
            name = obj.__qualname__ if isinstance(obj, (type, FunctionType)) else ""
            if name in program and program[name] is obj:
                named[name] = obj
            return super().reducer_override(obj)

    pickler = Pickler(file)
    pickler.dump(value)
    pickler.dump(dict(named))
    pickler.dump(sources.texts())


def read_call(data: memoryview) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """On a rank: the call, after it has entered the caller's surroundings. Raises RuntimeError.

    Classes and functions of the caller's program are found in ``__main__`` here, too, where pickle looks for
    them: as for torch.save of a whole model.
    """
    header, rest = _split(data)
    Surroundings(**header).enter()
    try:
        unpickler = pickle.Unpickler(io.BufferedReader(_Reader(rest)))
        function, arguments, keywords = unpickler.load()
        vars(sys.modules["__main__"]).update(unpickler.load())
        code_objects.show(unpickler.load())
    except Exception as error:
        raise RuntimeError(
            f"this rank cannot unpickle the function or its arguments ({type(error).__name__}: {error}). "
            "Modules of the caller must be importable where the ranks run; "
            "cloudpickle.register_pickle_by_value(module) sends one along"
        ) from error
    return function, arguments, keywords


class _Reader(io.RawIOBase):
    """Bytes as a file, without a copy of them."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), len(self._rest))
        memoryview(buffer).cast("B")[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def result_bytes(result: Any) -> bytes:
    """What a function returned. Raises RuntimeError when it cannot be pickled."""
    import cloudpickle

    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        raise RuntimeError(
            f"the function returned a {type(result).__name__} that cannot be pickled: {error}. Return plain "
            "values, arrays or tensors"
        ) from error


def read_result(data: memoryview, rank: int) -> Any:
    """In the caller: what the function returned on ``rank``. Raises RuntimeError."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise RuntimeError(
            f"horovod.run cannot unpickle the result of rank {rank} ({type(error).__name__}: {error})"
        ) from error


def error_bytes(error: BaseException) -> tuple[bytes, str]:
    """What a function raised: its traceback, and the exception itself where a copy can be made of it; and the
    traceback as text. A text that nobody would read to its end is without its middle.
    """
    text = _readable(formatted(error))
    process = f"{os.environ.get('HOROVOD_HOSTNAME', 'localhost')}, pid {os.getpid()}"
    header = {"process": process, "summary": _summary(error), "traceback": text}
    return _headed(header) + _copyable(error), text


def read_error(data: memoryview, rank: int) -> BaseException:
    """In the caller: the exception of ``rank``, a RuntimeError that says the same where it cannot be copied.
    Its cause is the traceback.
    """
    header, rest = _split(data)
    error: BaseException | None = None
    if rest:
        try:
            error = pickle.loads(rest)
        except Exception:  # its class cannot be imported here
            pass
    if not isinstance(error, BaseException):
        error = RuntimeError(f"rank {rank}: {header['summary']}")
    cause = RemoteTraceback(rank, header["process"], header["traceback"])
    BaseException.__setattr__(error, "__cause__", cause)  # its class may let nobody set anything
    return error


def _copyable(error: BaseException) -> bytes:
    """The exception pickled, empty when it cannot be or would not come back."""
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(error)
        return pickled if type(pickle.loads(pickled)) is type(error) else b""
    except Exception:
        return b""


def _summary(error: BaseException) -> str:
    return _readable("".join(traceback.format_exception_only(error)).strip())


def _readable(text: str) -> str:
    """Of bounded length, and without the lone surrogates that names of files may have, which no stream
    takes.
    """
    if len(text) > _LONGEST_TEXT:
        side = _LONGEST_TEXT // 2
        text = f"{text[:side]}\n... ({len(text) - 2 * side} characters are left out) ...\n{text[-side:]}"
    return text.encode(errors="backslashreplace").decode()


def _headed(header: Mapping[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


def _split(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return json.loads(bytes(data[_LENGTH.size : end])), data[end:]


def _python() -> str:
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def _merged(callers: Sequence[str], own: Sequence[str], is_same_python: bool) -> list[str]:
    """The caller's folders in their order, then those of this Python alone. Another Python keeps its own
    first, or it would load modules of the wrong one.
    """
    first, then = (callers, own) if is_same_python else (own, callers)
    return [*first, *(folder for folder in then if folder not in first)]
