"""Where the processes of a data service find each other: a store like that of horovodrun, in the first of
them. They prove the service's key before anything is read.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from horovod.bootstrap.errors import AbandonedError, BootstrapError, StartTimeoutError
from horovod.bootstrap.network import interfaces
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

_MOST_CLIENTS = 1 << 30  # each call takes a number of its own: nobody counts who takes part
_LONGEST_WAIT = 600.0  # seconds of one question after the end; then it is asked again


def own_addresses() -> list[str]:
    """Of this host, the one that others reach best first; HOROVOD_NETWORK_INTERFACES chooses."""
    existing = [name for _, name in socket.if_nameindex()]
    network = interfaces.from_environment(os.environ)
    return interfaces.chosen(network, interfaces.addresses(), existing, interfaces.default_routes())


class ComputeService:
    """Serves until ``close``; ``addresses`` is what clients dial. ``key``: 32 random bytes."""

    def __init__(self, key: bytes) -> None:
        ports = interfaces.from_environment(os.environ).ports
        self._store = StoreServer(key, _MOST_CLIENTS, "tcp", _warn, own_addresses(), ports=ports)
        self.addresses = self._store.address
        self._store.start()

    def close(self) -> None:
        """Clients that wait for something fail."""
        self._store.close()


class ComputeClient:
    """What dispatchers, workers and trainings tell and ask. ``timeout``: seconds to reach the service."""

    def __init__(self, addresses: str, key: bytes, workers: int, timeout: float, verbose: int = 1) -> None:
        self._addresses = addresses
        self._key = key
        self._workers = workers
        self._timeout = timeout
        self._verbose = verbose

    def register_dispatcher(self, dispatcher: int, address: str) -> None:
        """Dispatcher number ``dispatcher`` answers at ``address``."""
        self._say(f"dispatcher {dispatcher} is at {address}")
        with self._store() as store:
            store.set(f"dispatcher.{dispatcher}", address.encode())

    def wait_for_dispatcher_registration(self, dispatcher: int, timeout: float) -> str:
        """The address of a dispatcher. Raises TimeoutError where it does not come in so many seconds."""
        return self._wait(f"dispatcher.{dispatcher}", timeout, f"dispatcher {dispatcher}")

    def register_worker_for_dispatcher(self, dispatcher: int, worker: int) -> None:
        """Worker number ``worker`` has come to the dispatcher, perhaps once more."""
        self._say(f"worker {worker} is at dispatcher {dispatcher}")
        with self._store() as store:
            is_new = store.add(f"worker.{dispatcher}.{worker}", 1) == 1
            if is_new and store.add(f"workers.{dispatcher}", 1) == self._workers:
                store.set(f"ready.{dispatcher}", b"")

    def wait_for_dispatcher_worker_registration(self, dispatcher: int, timeout: float) -> None:
        """Until all workers of a dispatcher have come. Raises TimeoutError after so many seconds."""
        self._wait(f"ready.{dispatcher}", timeout, f"all {self._workers} workers of dispatcher {dispatcher}")

    def shutdown(self) -> None:
        """Ends the service for everybody, if it has not ended by itself."""
        with suppress(StartTimeoutError, AbandonedError), self._store() as store:
            store.set("shutdown", b"")

    def wait_for_shutdown(self) -> None:
        """Until somebody has called ``shutdown``, or the process that serves is gone."""
        while True:
            try:
                with self._store() as store:
                    store.get("shutdown", _LONGEST_WAIT)
                return
            except TimeoutError:
                continue
            except BootstrapError:
                return

    def _wait(self, key: str, timeout: float, what: str) -> str:
        try:
            with self._store() as store:
                return store.get(key, timeout).decode()
        except TimeoutError:
            raise TimeoutError(
                f"{what} of the data service at {self._addresses} did not come within {timeout:g} s. Look at "
                "the output of its processes, and give it more time by their --timeout."
            ) from None

    @contextmanager
    def _store(self) -> Iterator[StoreClient]:
        number = secrets.randbelow(_MOST_CLIENTS)
        with StoreClient(self._addresses, self._key, number, 0, self._timeout, "the data service") as store:
            yield store

    def _say(self, text: str) -> None:
        if self._verbose > 1:
            _warn(text)


def _warn(text: str) -> None:
    sys.stderr.write(f"horovod data service: {text}\n")
