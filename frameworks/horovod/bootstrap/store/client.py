"""A rank's side of the rendezvous store."""

import hmac
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..errors import (
    AbandonedError,
    AnotherUserError,
    AuthenticationError,
    BootstrapError,
    NobodyListensError,
    StartTimeoutError,
)
from ..network import endpoints
from ..network.auth import HANDSHAKE_SECONDS, LAUNCHER_RANK, Keys, Role, Terms, authenticate
from ..network.frames import Opener, Sealer
from .messages import TOKEN_BYTES, Tag, decode, encode, owner

_ANSWER_SLACK = 10.0
_RETRY_SECONDS = 0.02
_CONNECT_SECONDS = 0.4  # for an address, where there are others, in the first round; then twice as long
_RETRY_LIMIT = 1.0
_OWN = os.urandom(32)  # of this process and those that it forks


# A problem met before, or None; where the store may be.
Finder = Callable[[Exception | None], str]


def dial(
    address: str | Finder,
    secret: bytes,
    rank: int,
    generation: int,
    timeout: float,
    keeper: str = "horovodrun",
) -> tuple[socket.socket, Keys]:
    """An authenticated blocking connection to the launcher at ``address``, or at the first of several, with
    commas between, that answers. What finds the address is asked again after each problem.

    Refused or dropped connections are tried again, with growing random pauses, until ``timeout`` seconds
    have passed.
    """
    deadline = time.monotonic() + timeout
    terms = Terms(Role.LAUNCHER, rank, LAUNCHER_RANK, generation)
    pause, patience = _RETRY_SECONDS, _CONNECT_SECONDS
    problem: Exception | None = None
    while True:
        where = address(problem) if callable(address) else address
        addresses = where.split(",")
        try:
            return _dial_one_of(addresses, secret, terms, deadline, patience)
        except AuthenticationError as error:
            if len(addresses) == 1 or time.monotonic() >= deadline:
                raise AuthenticationError(f"rank {rank}: the store at {where}: {error}") from None
            problem = error
        except AnotherUserError as error:
            if not callable(address) or time.monotonic() + pause >= deadline:
                raise AnotherUserError(f"rank {rank}: the store at {where}: {error}") from None
            problem = error
        except (OSError, StartTimeoutError) as error:
            problem = error
            if time.monotonic() + pause >= deadline:
                kind = NobodyListensError if isinstance(error, ConnectionError) else StartTimeoutError
                raise kind(
                    f"rank {rank}: no connection to the store of {keeper} at {where} within {timeout:g} s "
                    f"({error}); is {keeper} still running?"
                ) from None
        time.sleep(endpoints.jittered(pause))
        pause, patience = min(2 * pause, _RETRY_LIMIT), 2 * patience


def _dial_one_of(
    addresses: Sequence[str], secret: bytes, terms: Terms, deadline: float, patience: float
) -> tuple[socket.socket, Keys]:
    """Tries each once, at most ``patience`` seconds where there are others: packets to an address that does
    not route may vanish. Who listens at one of several may be of another job, too, and never answer; the
    store that has one address may be slow to. Raises that somebody answered who is of another job, or why an
    address is out of reach, or that nobody listens at any.
    """
    problems: list[Exception] = []
    for address in addresses:
        to_connect = to_answer = max(0.1, deadline - time.monotonic())
        if len(addresses) > 1:
            to_connect = min(to_connect, patience)
            to_answer = min(to_answer, patience / _CONNECT_SECONDS * HANDSHAKE_SECONDS)
        try:
            return _dial_once(address, secret, terms, to_connect, to_answer)
        except (OSError, BootstrapError) as error:
            problems.append(error)
    raise max(problems, key=_weight)


def _weight(problem: Exception) -> int:
    return 2 if isinstance(problem, AuthenticationError) else int(not isinstance(problem, ConnectionError))


def _dial_once(
    address: str, secret: bytes, terms: Terms, to_connect: float, to_answer: float
) -> tuple[socket.socket, Keys]:
    connection = endpoints.connect(address, to_connect)
    try:
        return connection, authenticate(connection, secret, terms, to_answer)
    except BaseException:
        connection.close()
        raise


def _token() -> bytes:
    """Tells this process from every other one, on whatever host; a forked child has its own."""
    return hmac.digest(_OWN, b"%d" % os.getpid(), "sha256")[:TOKEN_BYTES]


class LauncherLink(NamedTuple):
    """A rank's connection to the launcher, as the core goes on with it: ``frames`` are sealed already."""

    descriptor: int
    key: bytes
    frames: int


class StoreClient:
    """Set, wait and add in the store. Use as a context manager, on one thread.

    A rank has this one connection to the launcher: ``detach`` takes it from here when the rank has started.
    """

    def __init__(
        self,
        address: str | Finder,
        secret: bytes,
        rank: int,
        generation: int,
        timeout: float,
        keeper: str = "horovodrun",
    ) -> None:
        self._rank = rank
        self._timeout = timeout
        self._dial_again = partial(StoreClient, address, secret, rank, 0, keeper=keeper)
        self._connection, keys = dial(address, secret, rank, generation, timeout, keeper)
        self._sealer, self._opener = Sealer(keys.send), Opener(keys.receive)
        self._key = keys.send
        process = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            self._claim(process)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "StoreClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connection(self) -> socket.socket:
        """Readable, between two requests, when the launcher has ended it."""
        return self._connection

    @property
    def is_over_network(self) -> bool:
        """Whether the connection may break while both ends live."""
        return self._connection.family != socket.AF_UNIX

    @property
    def own_host(self) -> str:
        """The address of this host by which the launcher is reached."""
        return endpoints.own_host(self._connection)

    def close(self) -> None:
        """Closes the connection; what was set stays."""
        self._connection.close()

    def again(self, timeout: float) -> "StoreClient":
        """Another connection of this rank, which goes on with the start that it is in."""
        return self._dial_again(timeout)

    def detach(self) -> LauncherLink:
        """The connection, which the caller owns from now on."""
        self._connection.settimeout(None)
        return LauncherLink(self._connection.detach(), self._key, self._sealer.count)

    def set(self, key: str, value: bytes) -> None:
        """Stores ``value``, replacing what was there."""
        self._request(Tag.SET, [key.encode(), value])

    def add(self, key: str, delta: int) -> int:
        """Adds to the integer under ``key`` (0 when absent) and returns the sum."""
        return int(self._request(Tag.ADD, [key.encode(), b"%d" % delta])[0])

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """The value of ``key``, as soon as somebody has set it."""
        return self.wait([key], timeout)[0]

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> list[bytes]:
        """The values of all ``keys``, as soon as all are set.

        Keys of the form ".../<rank>" belong to that rank. Raises StartTimeoutError, naming the ranks that
        never arrived, and BootstrapError as soon as one of them has ended.
        """
        limit = self._timeout if timeout is None else timeout
        encoded = [key.encode() for key in keys]
        tag, fields = self._exchange(Tag.WAIT, [b"%d" % max(1, int(limit * 1000)), *encoded], limit)
        if tag in (Tag.ABSENT, Tag.ENDED):
            missing = [field.decode(errors="replace") for field in fields]
            raise _absence(missing, self._rank, limit if tag == Tag.ABSENT else None)
        values = self._values(tag, fields)
        if len(values) == len(keys):
            return values
        half = len(keys) // 2  # all are there, and too large for one answer
        return self.wait(keys[:half], limit) + self.wait(keys[half:], limit)

    def blame(self, absent: Sequence[int], reason: str) -> None:
        """Tells the launcher which ranks did not come to the start: it ends the job, and says who failed it.

        Does nothing when the launcher does not listen.
        """
        from .verdicts import on_absent

        payload = encode(Tag.VERDICT, on_absent(absent, reason))
        try:
            self._connection.settimeout(_ANSWER_SLACK)
            self._connection.sendall(self._sealer.seal(payload))
        except OSError:
            pass

    def _claim(self, process: str) -> None:
        tag, fields = self._exchange(Tag.CLAIM, [_token(), process.encode(errors="replace")], 0.0)
        if tag == Tag.OVER:
            raise StartTimeoutError(f"rank 0 is still in the program that rank {self._rank} has left already")
        self._values(tag, fields)

    def _request(self, tag: Tag, fields: Sequence[bytes]) -> list[bytes]:
        return self._values(*self._exchange(tag, fields, 0.0))

    def _values(self, tag: Tag, fields: list[bytes]) -> list[bytes]:
        if tag != Tag.OK:
            raise BootstrapError(
                f"rank {self._rank}: the store refused: {b' '.join(fields).decode(errors='replace')}"
            )
        return fields

    def _exchange(self, tag: Tag, fields: Sequence[bytes], patience: float) -> tuple[Tag, list[bytes]]:
        self._connection.settimeout(patience + _ANSWER_SLACK)
        try:
            self._connection.sendall(self._sealer.seal(encode(tag, fields)))
            while True:
                data = self._connection.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("connection closed")
                payloads = self._opener.feed(data)
                if payloads:
                    return decode(payloads[0])
        except OSError as error:
            raise AbandonedError(
                f"rank {self._rank}: the launcher's store does not answer: {error}"
            ) from error


def _absence(keys: list[str], rank: int, seconds: float | None) -> BootstrapError:
    """What is to be raised for keys that did not come within ``seconds``; None: their ranks have ended."""
    ranks = [number for number in map(owner, keys) if number is not None]
    if len(ranks) != len(keys):
        return StartTimeoutError(f"rank {rank} waited {seconds:.1f} s for {', '.join(keys)} in the store")
    names = f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:16]))}"
    names += ", ..." if len(ranks) > 16 else ""
    if seconds is None:
        return BootstrapError(
            f"rank {rank}: {names} ended with exit status 0 and did not come to hvd.init(), which every "
            "rank must call. Look for an early return or exit that not every rank takes",
            ranks,
        )
    return StartTimeoutError(
        f"rank {rank} waited {seconds:.1f} s: {names} never arrived. Look whether "
        f"{'it runs and calls' if len(ranks) == 1 else 'they run and call'} hvd.init(). For a slow start, "
        "raise HOROVOD_START_TIMEOUT or --start-timeout",
        ranks,
    )
