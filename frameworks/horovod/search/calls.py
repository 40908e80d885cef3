"""How ranks reach the study of rank 0: a request and its answer, as JSON, by messages of the job.

Nothing listens on a port, and what comes is no code: a request names one of the functions that are served.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from horovod.common import basics
from horovod.common.collective.byte_objects import operations
from horovod.common.exceptions import HorovodInternalError
from horovod.common.progress import waits_apart

KEEPER = 0  # the rank that has the study
_LENGTH_BYTES = 8
_TAG = 0x5EA6C4 << 24  # of requests, far from what programs count up from 0; one more for each kind
_REQUEST, _REQUEST_DATA, _ANSWER, _ANSWER_DATA, _END, _END_DATA = range(_TAG, _TAG + 6)

_RESULT, _LEAVE = "result", "leave"

Function = Callable[..., Any]


def _send(content: Any, rank: int, tag: int, data_tag: int) -> None:
    data = _encoded(content)
    operations.send(bytearray(len(data).to_bytes(_LENGTH_BYTES, "little")), rank, tag)
    if data:
        operations.send(bytearray(data), rank, data_tag)


def _receive(source: int | None, tag: int, data_tag: int) -> tuple[int, Any]:
    """The sender and what it has sent; None: it wants the serving to end."""
    length = bytearray(_LENGTH_BYTES)
    sender = operations.recv(length, source, tag)
    size = int.from_bytes(length, "little")
    if size == 0:
        return sender, None
    data = bytearray(size)
    operations.recv(data, sender, data_tag)
    return sender, json.loads(data)


class RefusedError(ValueError):
    """The study does not take what a rank has asked; the text is Optuna's."""


class Service:
    """Answers the requests of the other ranks on a thread of its own, and those of this one at once.

    Args:
        functions: what may be asked, by name. They are called one at a time.
        needed: those without which the search cannot go on: where one fails, or the system fails any, it is
            over on all ranks.
        teams: how many of them leave before the search ends.
        result: of the search, which every rank gets then; JSON can hold it.
    """

    def __init__(
        self, functions: Mapping[str, Function], needed: Collection[str], teams: int, result: Function
    ) -> None:
        self._functions = {**functions, _LEAVE: self._leave, _RESULT: result}
        self._needed = {*needed, _RESULT}
        self._left = teams
        self._problem: dict[str, Any] | None = None
        self._has_ended = threading.Event()
        if teams == 0:
            self._has_ended.set()
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="horovod-search", daemon=True)
        self._thread.start()

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer to this rank. Raises RefusedError."""
        return _result(self._answer(_plain([name, *arguments])))

    def end(self) -> Any:
        """Waits until all teams have left. Returns the result, which every other rank gets, too. Raises
        RefusedError, as they do, or HorovodInternalError where a rank is gone.
        """
        self._has_ended.wait()
        if self._error is not None:
            raise self._error
        operations.send(bytearray(_LENGTH_BYTES), basics.rank(), _REQUEST)
        self._thread.join()
        found = self._answer([_RESULT])
        for rank in range(basics.size()):
            if rank != basics.rank():
                _send(found, rank, _END, _END_DATA)
        return _result(found)

    def _serve(self) -> None:
        try:
            while True:
                begin = time.monotonic()
                sender, request = _receive(None, _REQUEST, _REQUEST_DATA)
                waits_apart(time.monotonic() - begin)
                if request is None:
                    return
                _send(self._answer(request), sender, _ANSWER, _ANSWER_DATA)
        except (HorovodInternalError, ValueError) as error:
            self._error = error
            self._has_ended.set()

    def _answer(self, request: list[Any]) -> dict[str, Any]:
        name, *arguments = request
        with self._lock:
            if self._problem is not None and name != _LEAVE:
                return self._problem
            try:
                return {"is": _plain(self._functions[name](*arguments))}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
                # A file of which a write has failed may end in half a line: nothing may be written behind it.
                if name in self._needed or isinstance(error, OSError):
                    self._problem = answer
                return answer

    def _leave(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._has_ended.set()


class Client:
    """Asks the service of another rank; one request at a time."""

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer. Raises RefusedError, or HorovodInternalError where a rank is gone."""
        _send([name, *arguments], KEEPER, _REQUEST, _REQUEST_DATA)
        return _result(_receive(KEEPER, _ANSWER, _ANSWER_DATA)[1])

    def end(self) -> Any:
        """Waits for the end of the search. Returns its result. Raises as ``call``."""
        return _result(_receive(KEEPER, _END, _END_DATA)[1])


def _plain(value: Any) -> Any:
    """As the other ranks get it. Raises RefusedError."""
    return json.loads(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_number).encode()
    except (TypeError, ValueError) as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from None


def _number(value: Any) -> Any:
    """A scalar of NumPy or of a framework, as Python has it."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


def _result(answer: Mapping[str, Any]) -> Any:
    if "error" in answer:
        raise RefusedError(answer["error"])
    return answer["is"]
