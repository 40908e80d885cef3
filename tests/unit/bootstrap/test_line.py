"""A worker's line to the launcher: over a network that forgets connections, and to one that is stopped."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import within

from horovod.bootstrap.errors import AbandonedError
from horovod.bootstrap.network import endpoints
from horovod.bootstrap.store import client as clients
from horovod.bootstrap.store import line as lines
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.line import Line
from horovod.bootstrap.store.server import StoreServer

SECRET = bytes(32)


class Network:
    """Carries bytes between those who dial ``address`` and a store. What is on a connection that it has
    forgotten vanishes, and nobody is told.
    """

    def __init__(self, target: str) -> None:
        self._target = endpoints.split(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._opened: list[socket.socket] = []
        self.accepted = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """All connections that there are."""
        for one in list(self._pairs):
            self._selector.unregister(one)
        self._pairs = {}

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        self._selector.close()
        for opened in (self._listener, *self._opened):
            opened.close()

    def _serve(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.02):
                key.data()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        self.accepted += 1
        try:
            far = socket.create_connection(self._target)  # type: ignore[arg-type]
        except OSError:
            near.close()
            return
        self._opened += near, far
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ, self._carrier(one, other))

    def _carrier(self, one: socket.socket, other: socket.socket) -> Callable[[], None]:
        def carry() -> None:
            if one not in self._pairs:
                return
            data = b""
            with contextlib.suppress(ConnectionError):
                data = one.recv(1 << 16)
            if data:
                other.sendall(data)
            else:
                with contextlib.suppress(OSError):
                    other.shutdown(socket.SHUT_WR)
                self._selector.unregister(one)
                self._pairs.pop(one)

        return carry


@pytest.fixture
def store() -> Iterator[StoreServer]:
    server = StoreServer(SECRET, 4, "tcp")
    server.start()
    yield server
    server.close()


@pytest.fixture
def network(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setattr(clients, "_ANSWER_SLACK", within(0.3))
    monkeypatch.setattr(lines, "TURN_SECONDS", 0.2)
    network = Network(store.address)
    yield network
    network.close()


def line_over(network: Network, patience: float = 20.0) -> Line:
    return Line(lambda timeout: StoreClient(network.address, SECRET, 1, 0, timeout), 5.0, patience)


def test_what_is_set_arrives_although_the_network_has_forgotten_the_connection(
    store: StoreServer, network: Network
) -> None:
    line = line_over(network)
    for number in range(3):
        network.forget()
        line.set(f"key/{number}", b"%d" % number)
    with StoreClient(store.address, SECRET, 2, 0, 5.0) as reader:
        assert [reader.get(f"key/{number}") for number in range(3)] == [b"0", b"1", b"2"]
    assert network.accepted >= 4  # more if an answer was late
    line.close()


def test_who_waits_hears_of_it_although_the_network_has_forgotten_the_connection(
    store: StoreServer, network: Network
) -> None:
    line = line_over(network)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(line.wait_for, "news")
        time.sleep(0.3)
        network.forget()
        time.sleep(0.3)
        store.set(b"news", b"told")
        assert waits.result(within(10.0)) == b"told"
    line.close()


def test_a_wait_keeps_its_connection_busy(
    network: Network, store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_ANSWER_SLACK", 30.0)  # an answer that is late would look like a lost one
    line = line_over(network)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(line.wait_for, "news")
        time.sleep(1.0)  # of five turns
        store.set(b"news", b"told")
        assert waits.result(within(10.0)) == b"told"
    assert network.accepted == 1
    line.close()


def test_a_launcher_that_has_ended_is_not_waited_for(network: Network, store: StoreServer) -> None:
    line = line_over(network, patience=60.0)
    store.close()
    begin = time.monotonic()
    with pytest.raises(AbandonedError):
        line.set("key", b"")
    assert time.monotonic() - begin < within(6.0)
    line.close()


def test_a_launcher_out_of_reach_is_waited_for_after_its_connection_broke(
    store: StoreServer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_TRY_SECONDS", 0.3)
    line = line_over(network)
    accept = network._selector.get_key(network._listener).data
    network._selector.modify(network._listener, selectors.EVENT_READ, lambda: time.sleep(0.01))
    for end in list(network._pairs):
        with contextlib.suppress(OSError):  # its other end has gone first
            end.shutdown(socket.SHUT_RDWR)
    back = threading.Timer(1.5, network._selector.modify, (network._listener, selectors.EVENT_READ, accept))
    back.start()
    line.set("key", b"value")
    with StoreClient(store.address, SECRET, 2, 0, 5.0) as reader:
        assert reader.get("key") == b"value"
    back.join()
    line.close()


def test_patience_has_an_end(store: StoreServer, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_over(network, patience=0.5)
    monkeypatch.setattr(network, "_accept", lambda: None)
    network._selector.modify(network._listener, selectors.EVENT_READ, lambda: time.sleep(0.01))
    network.forget()
    begin = time.monotonic()
    with pytest.raises(AbandonedError):
        line.set("key", b"")
    assert time.monotonic() - begin < within(5.0)
    line.close()
