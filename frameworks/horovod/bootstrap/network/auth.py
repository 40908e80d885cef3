"""Mutual proof of the job's secret over a fresh connection, before any other byte is interpreted.

Terms: the *connector* dialled, the *acceptor* listened. Four frames of fixed size travel:

    connector                         acceptor
    HELLO  terms, nonce       ->
                              <-      CHALLENGE  nonce, acceptor's proof
    PROOF  connector's proof  ->
                              <-      WELCOME    the acceptor has taken the connection

Every proof is HMAC-SHA256 of the secret over a label and the transcript (terms and both nonces). The labels
differ by direction, so no proof can be sent back as the answer to itself. The exchange is a pure state
machine: bytes in, bytes out.
"""

import enum
import hmac
import os
import socket
import struct
import time
from typing import NamedTuple, Protocol

from ..errors import AuthenticationError, StartTimeoutError, StrangerError

HANDSHAKE_SECONDS = 5.0
LAUNCHER_RANK = -1

_MAGIC = b"HVDLINK\0"
_VERSION = 1
_NONCE_BYTES = _PROOF_BYTES = 32
_HELLO = struct.Struct(f"!8sHBxiiQ{_NONCE_BYTES}s")
_CHALLENGE = struct.Struct(f"!8sH2x{_NONCE_BYTES}s{_PROOF_BYTES}s")


class Role(enum.IntEnum):
    """What a connection is for. The first four are the roles of the core's links."""

    WATCH = 0
    CONTROL = 1
    DATA = 2
    SHARE = 3
    LAUNCHER = 4  # requests to the store, verdicts; its end is the launcher's
    AGENT = 5  # of the launcher, on a host where nobody has started it for the launcher
    DATA_2 = 6  # further sockets for data, as HOROVOD_DATA_LINKS says
    DATA_3 = 7
    DATA_4 = 8


class Terms(NamedTuple):
    """What both sides must agree on; bound into every proof and key."""

    role: Role
    connector: int
    acceptor: int
    generation: int


class Keys(NamedTuple):
    """The keys of one authenticated connection, different for each direction."""

    send: bytes
    receive: bytes


class Policy(Protocol):
    """Says whether an acceptor is willing to talk on these terms."""

    def __call__(self, terms: Terms) -> bool: ...


class Connector:
    """The dialling side. Send ``greeting()``, then feed received bytes until ``keys`` is set."""

    def __init__(self, secret: bytes, terms: Terms) -> None:
        self.keys: Keys | None = None
        self._secret = secret
        self._hello = _HELLO.pack(
            _MAGIC, _VERSION, terms.role, terms.connector, terms.acceptor, terms.generation, _nonce()
        )
        self._transcript = b""
        self._received = bytearray()

    def greeting(self) -> bytes:
        """The first frame."""
        return self._hello

    def wanted(self) -> int:
        """How many bytes to receive next, so that nothing behind the handshake is swallowed."""
        return (_PROOF_BYTES if self._transcript else _CHALLENGE.size) - len(self._received)

    def feed(self, data: bytes) -> bytes:
        """Takes up to ``wanted()`` received bytes; returns what to send (maybe nothing)."""
        self._received += data
        if self.wanted() > 0:
            return b""
        frame = bytes(self._received)
        self._received.clear()
        if not self._transcript:
            return self._answer(frame)
        _require(self._secret, b"welcome", self._transcript, frame)
        self.keys = Keys(*_direction_keys(self._secret, self._transcript))
        return b""

    def _answer(self, frame: bytes) -> bytes:
        magic, version, nonce, proof = _CHALLENGE.unpack(frame)
        if magic != _MAGIC:
            raise StrangerError("the other side does not speak the link protocol")
        if version != _VERSION or frame != _CHALLENGE.pack(magic, version, nonce, proof):  # its padding
            raise AuthenticationError("the other side does not speak this version of the link protocol")
        transcript = self._hello + nonce
        _require(self._secret, b"acceptor", transcript, proof)
        self._transcript = transcript
        return _digest(self._secret, b"connector", transcript)


class Acceptor:
    """The listening side. Feed received bytes until ``keys`` is set; ``terms`` then says who it is."""

    def __init__(self, secret: bytes, policy: Policy) -> None:
        self.keys: Keys | None = None
        self.terms: Terms | None = None
        self._secret = secret
        self._policy = policy
        self._transcript = b""
        self._received = bytearray()

    def wanted(self) -> int:
        """How many bytes to receive next."""
        return (_PROOF_BYTES if self._transcript else _HELLO.size) - len(self._received)

    def feed(self, data: bytes) -> bytes:
        """Takes up to ``wanted()`` received bytes; returns what to send (maybe nothing)."""
        self._received += data
        if self.wanted() > 0:
            return b""
        frame = bytes(self._received)
        self._received.clear()
        if not self._transcript:
            return self._challenge(frame)
        _require(self._secret, b"connector", self._transcript, frame)
        connector_sends, acceptor_sends = _direction_keys(self._secret, self._transcript)
        self.keys = Keys(acceptor_sends, connector_sends)
        return _digest(self._secret, b"welcome", self._transcript)

    def _challenge(self, hello: bytes) -> bytes:
        magic, version, role, connector, acceptor, generation, _ = _HELLO.unpack(hello)
        if magic != _MAGIC or version != _VERSION or role not in Role.__members__.values():
            raise AuthenticationError("not a link of this version")
        self.terms = Terms(Role(role), connector, acceptor, generation)
        if not self._policy(self.terms):
            raise AuthenticationError(f"unexpected terms: {self.terms}")
        nonce = _nonce()
        self._transcript = hello + nonce
        return _CHALLENGE.pack(_MAGIC, _VERSION, nonce, _digest(self._secret, b"acceptor", self._transcript))


def authenticate(connection: socket.socket, secret: bytes, terms: Terms, seconds: float) -> Keys:
    """Runs the dialling side on a connected socket.

    The limit of ``seconds`` holds for the whole exchange, not for each receive, so that a peer which sends a
    byte now and then gains nothing. Raises AuthenticationError (wrong secret or terms), StartTimeoutError, or
    ConnectionError (dropped).
    """
    deadline = time.monotonic() + seconds
    connector = Connector(secret, terms)
    outgoing = connector.greeting()
    while connector.keys is None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise StartTimeoutError(f"no answer to the authentication within {seconds:g} s")
        connection.settimeout(remaining)
        try:
            if outgoing:
                connection.sendall(outgoing)
            data = connection.recv(connector.wanted())
        except TimeoutError:
            continue
        if not data:
            raise ConnectionResetError("the other side dropped the connection during authentication")
        outgoing = connector.feed(data)
    connection.settimeout(None)
    return connector.keys


def _nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _digest(secret: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, b"horovod " + label + b"\0" + transcript, "sha256")


def _require(secret: bytes, label: bytes, transcript: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(_digest(secret, label, transcript), proof):
        raise AuthenticationError(
            "the other side does not hold this job's secret, or was called on other terms"
        )


def _direction_keys(secret: bytes, transcript: bytes) -> tuple[bytes, bytes]:
    """(connector to acceptor, acceptor to connector)."""
    return _digest(secret, b"key forward", transcript), _digest(secret, b"key backward", transcript)
