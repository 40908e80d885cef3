"""What a launcher offers its ranks to tell each other a few bytes with, before they have links of their own.

There it stands where rank 0 keeps the rendezvous store, and, where the user gives no secret, what proves that
one may ask it.
"""

import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from ..errors import BootstrapError
from ..identity import Identity
from ..sources import MPICH, SRUN, TORCHRUN
from ..text import shown
from . import pmi

_PORTS = range(1, 65536)


class Carrier(Protocol):
    """Takes a line of text without spaces from rank 0 to all others. ``is_public``: anybody who reaches it
    can read and change it.
    """

    @property
    def name(self) -> str:
        """For people."""

    @property
    def is_public(self) -> bool:
        """See above."""

    def tell(self, value: str) -> None:
        """Called by rank 0."""

    def hear(self, timeout: float) -> str:
        """Called by all others, also again when what they heard was of no use."""


class TorchStore:
    """The store that torchrun keeps for torch.distributed, through the client of torch. Never binds its port.

    Raises BootstrapError when it does not answer.
    """

    is_public = True

    def __init__(self, environ: Mapping[str, str], rank: int, timeout: float, distributed: Any) -> None:
        host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
        self.name = f"torchrun's store at {shown(host)}:{shown(port)}"
        self._rank = rank
        # Every restart of the ranks has a value of its own.
        parts = (environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", ""))
        self._key = "/".join(("horovod", *parts, "store"))
        if not host or not port.isdecimal() or int(port[:6]) not in _PORTS:
            raise BootstrapError(f"MASTER_ADDR={shown(host)} and MASTER_PORT={shown(port)} are no address")
        try:
            limit = timedelta(seconds=timeout)
            self._store = distributed.TCPStore(host, int(port), None, False, limit, wait_for_workers=False)
        except RuntimeError as error:
            raise self._failure(error) from None

    def tell(self, value: str) -> None:
        """See Carrier."""
        try:
            self._store.set(self._key, value)
        except RuntimeError as error:
            raise self._failure(error) from None

    def hear(self, timeout: float) -> str:
        """See Carrier."""
        try:
            self._store.set_timeout(timedelta(seconds=max(0.1, timeout)))
            value: bytes = self._store.get(self._key)
        except RuntimeError as error:
            raise self._failure(error) from None
        return value.decode(errors="replace")

    def _failure(self, error: RuntimeError) -> BootstrapError:
        first = (str(error).splitlines() or [""])[0]
        return BootstrapError(
            f"rank {self._rank}: {self.name}: {shown(first)}. Do all ranks call hvd.init(), and rank 0, too?"
        )


def carrier_of(identity: Identity, environ: Mapping[str, str], timeout: float) -> Carrier | None:
    """What the launcher of this process offers; None: nothing that is known here."""
    if identity.launcher in (MPICH, SRUN):
        return pmi.opened(environ, identity.rank, timeout)
    # Without a store of its agent, rank 0 of torch.distributed will make one: there is none yet.
    if identity.launcher == TORCHRUN and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        try:
            distributed = importlib.import_module("torch.distributed")
            return TorchStore(environ, identity.rank, timeout, distributed)
        except (ImportError, AttributeError):  # the ranks run in an environment without torch
            return None
    return None
