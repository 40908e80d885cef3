"""Where the ranks of a job meet that horovodrun has not started, and what they prove to each other there."""

import hmac
import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import AbandonedError, AuthenticationError, BootstrapError, StartTimeoutError
from ..identity import Identity
from ..network import endpoints, interfaces
from ..network.interfaces import Network
from ..secret import FILE_VARIABLE, SECRET_BYTES
from ..store.client import StoreClient
from ..store.server import StoreServer
from ..text import shown
from . import one_host
from .carriers import Carrier

_SECRET_KEY, _MASTER_KEY = "job/secret", "job/master"
_STALE_SECONDS = 5.0  # what rank 0 told may be of the ranks before a restart
_PAUSE_SECONDS = 0.2


class Offer(NamedTuple):
    """What rank 0 tells over a carrier: where its store is, and the secret, unless all have one."""

    address: str
    secret: bytes | None

    def encode(self) -> str:
        """One word."""
        return f"{self.address};{'' if self.secret is None else self.secret.hex()}"


def decode_offer(text: str) -> Offer:
    """Raises BootstrapError for what ``encode`` does not make."""
    address, separator, secret = text.partition(";")
    try:
        found = bytes.fromhex(secret) if secret else None
    except ValueError:
        found = b""
    if not separator or not address or (found is not None and len(found) != SECRET_BYTES):
        raise BootstrapError("what is told there is not from a rank of this version")
    return Offer(address, found)


@dataclass
class Rendezvous:
    """Where the store is, and what proves to it that one may ask; outlives a stop of the engine.

    ``own``: the secret that the user gives. ``root``: that one or the one that the carrier tells; None on one
    host, where none is needed. ``way``: how all this is known, for a log.
    """

    identity: Identity
    job: bytes
    own: bytes | None = field(repr=False)
    root: bytes | None = field(default=None, repr=False)
    carrier: Carrier | None = None
    address: str = ""
    key: bytes = field(default=b"", repr=False)
    server: StoreServer | None = None  # in rank 0
    master: str = endpoints.LOOPBACK
    way: str = ""

    def client(self, generation: int, timeout: float) -> StoreClient:
        """A connection to the store. Raises BootstrapError when there is none within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            patience = left = max(0.1, deadline - time.monotonic())
            if self.carrier and not self.server:
                self._learn(self.carrier, left)
                patience = min(left, _STALE_SECONDS)
            is_named = not self.server and not self.carrier and self.address.startswith("unix:")
            address = one_host.elsewhere(self.address) if is_named else self.address
            try:
                return StoreClient(address, self.key, self.identity.rank, generation, patience, "rank 0")
            except (StartTimeoutError, AuthenticationError, AbandonedError) as error:
                if time.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise self._unreached(error, timeout) from None
            time.sleep(_PAUSE_SECONDS)

    def _learn(self, carrier: Carrier, timeout: float) -> None:
        offer = decode_offer(carrier.hear(timeout))
        if (offer.secret is None) != (self.own is not None):
            raise BootstrapError(
                f"rank {self.identity.rank} and rank 0 do not agree on {FILE_VARIABLE}: it is set on one of "
                "them only. Let the launcher pass it to all ranks"
            )
        self.address, self.root = offer.address, offer.secret or self.own
        assert self.root is not None
        self.key = derive(self.root, b"store", self.job)

    def job_secret(self, store: StoreClient, timeout: float) -> bytes:
        """What the ranks prove to each other: on one host a random secret, which no other user can see on its
        way; otherwise one that follows from the root and from what rank 0 draws.
        """
        rank = self.identity.rank
        if rank == 0:
            store.set(_SECRET_KEY, secrets.token_bytes(SECRET_BYTES))
        drawn = store.get(_SECRET_KEY, timeout)
        return drawn if self.root is None else derive(self.root, b"job", self.job, drawn)

    def export(
        self, store: StoreClient, network: Network, environ: MutableMapping[str, str], timeout: float
    ) -> None:
        """Sets what torch.distributed and others ask for, where it is not set: for connections of their
        own.
        """
        if self.identity.rank == 0:
            port = environ.get("MASTER_PORT") or str(endpoints.free_port(network.ports))
            store.set(_MASTER_KEY, f"{environ.get('MASTER_ADDR') or self.master} {port}".encode())
        address, _, port = store.get(_MASTER_KEY, timeout).decode().partition(" ")
        values = {
            "RANK": self.identity.rank,
            "WORLD_SIZE": self.identity.size,
            "LOCAL_RANK": self.identity.local_rank,
            "LOCAL_WORLD_SIZE": self.identity.local_size,
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
        }
        for name, value in values.items():
            environ.setdefault(name, str(value))

    def _unreached(self, error: BootstrapError, timeout: float) -> BootstrapError:
        rank, host = self.identity.rank, shown(self.identity.hostname)
        where = f"rank {rank} on {host}: no way to rank 0, whose store is at {shown(self.address)}"
        if isinstance(error, AuthenticationError):
            return AuthenticationError(
                f"{where}: who listens there does not hold this job's secret. Is the secret file the same on "
                "all hosts, and does every rank belong to this job?"
            )
        return StartTimeoutError(
            f"{where}, within {timeout:g} s. Look whether rank 0 runs and calls hvd.init(), and whether a "
            f"firewall keeps hosts apart ({interfaces.PORTS_VARIABLE} says which ports are used); {error}",
            error.absent,
        )


def derive(root: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """A key for one purpose, which tells nothing of ``root``."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (b"horovod", purpose, *parts))
    return hmac.digest(root, message, "sha256")
