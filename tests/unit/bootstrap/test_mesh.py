"""Links between ranks, which are threads here, and what enemies cannot do to them."""

import contextlib
import errno
import os
import random
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import within

from horovod.bootstrap.errors import (
    AuthenticationError,
    BootstrapError,
    SharedMemoryError,
    StartTimeoutError,
)
from horovod.bootstrap.identity import Identity
from horovod.bootstrap.mesh import dialler, linker, mesh
from horovod.bootstrap.mesh.linker import Link
from horovod.bootstrap.mesh.mesh import Entry, connect_mesh
from horovod.bootstrap.mesh.neighbours import at_start
from horovod.bootstrap.mesh.places import decode, place_of
from horovod.bootstrap.network import endpoints, gatekeeper
from horovod.bootstrap.network.auth import Acceptor, Connector, Role, Terms, authenticate
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

_SECRET = bytes(range(32))


@pytest.fixture
def server() -> Iterator[StoreServer]:
    before = len(os.listdir("/proc/self/fd"))
    server = StoreServer(_SECRET, 16)
    server.start()
    yield server
    server.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def _identity(rank: int, size: int) -> Identity:
    return Identity(rank, size, rank, size, 0, 1, "localhost")


def _join(
    server: StoreServer, rank: int, size: int, wiring: str, timeout: float = 10.0, generation: int = 1
) -> list[Link]:
    with StoreClient(server.address, _SECRET, rank, generation, timeout) as store:
        deadline = time.monotonic() + timeout
        made = connect_mesh(
            Entry(_identity(rank, size), generation, store, _SECRET, timeout), wiring, deadline
        )
        assert made.wiring == wiring or wiring == "auto"
        assert (made.on_demand is None) == (made.wiring == "shm")
        if made.on_demand is not None:
            made.on_demand.close()
        return made.links


def _join_all(server: StoreServer, size: int, wiring: str, generation: int = 1) -> list[list[Link]]:
    with ThreadPoolExecutor(size) as pool:
        ranks = [pool.submit(_join, server, rank, size, wiring, 10.0, generation) for rank in range(size)]
        return [rank.result() for rank in ranks]


def _close(meshes: list[list[Link]]) -> None:
    for links in meshes:
        for link in links:
            os.close(link[0])


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
@pytest.mark.parametrize("size", [2, 3, 8, 12])
def test_neighbours_are_linked_and_nobody_else(server: StoreServer, size: int, wiring: str) -> None:
    meshes = _join_all(server, size, wiring)
    by_end = {(rank, *link[1:3]): link for rank, links in enumerate(meshes) for link in links}
    wanted = [at_start(rank, [0] * size, wiring == "shm") for rank in range(size)]
    ends = [(rank, *link) for rank in range(size) for link in wanted[rank]]
    assert sorted(by_end) == sorted(ends) and len(by_end) == sum(map(len, meshes))
    for (rank, peer, role), (fd, _, _, send_key, recv_key) in by_end.items():
        other = by_end[peer, rank, role]
        assert (send_key, recv_key) == (other[4], other[3]) and send_key != recv_key
        message = b"%d %d %d" % (rank, peer, role)
        os.write(fd, message)
        assert os.read(other[0], 64) == message
        assert os.get_blocking(fd) and not os.get_inheritable(fd)
        with socket.socket(fileno=os.dup(fd)) as view:
            assert view.family == (socket.AF_UNIX if wiring == "shm" else socket.AF_INET)
    assert len({link[3] for link in by_end.values()}) == len(by_end)
    _close(meshes)


def test_refused_shared_memory_means_tcp_for_all_and_one_line(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [None, "memfd_create: not permitted", None]  # of whichever rank asks
    monkeypatch.setattr(mesh, "shared_memory_refusal", lambda ranks: answers.pop())
    meshes = _join_all(server, 3, "auto")
    assert all(sorted({link[2] for link in links}) == [0, 1, 2] for links in meshes)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "refuses shared memory to rank" in line and "memfd_create: not permitted" in line and "TCP" in line
    _close(meshes)


def test_shared_memory_that_is_asked_for_and_refused_is_an_error(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "shared_memory_refusal", lambda ranks: "not permitted")
    with pytest.raises(SharedMemoryError, match="rank 0: not permitted"):
        _join_all(server, 2, "shm")


def test_exhausted_ports_name_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_: socket.socket, address: object) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(endpoints.socket, "socket", type("Taken", (socket.socket,), {"bind": taken}))
    with pytest.raises(BootstrapError, match=r"all of \d+ to \d+ \(net.ipv4.ip_local_port_range\) are taken"):
        endpoints.listen("tcp")


def test_generations_do_not_meet(server: StoreServer) -> None:
    for generation in (1, 2, 3):
        _close(_join_all(server, 3, "shm", generation))


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_absent_rank_is_named_and_nothing_leaks(server: StoreServer, wiring: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(_join, server, rank, 3, wiring, 0.4) for rank in (0, 2)]
        for rank in ranks:
            with pytest.raises(StartTimeoutError, match="rank 1 never arrived"):
                rank.result()


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_rank_that_does_not_answer_is_named_and_nothing_leaks(server: StoreServer, wiring: str) -> None:
    listener, address = endpoints.listen("unix" if wiring == "shm" else "tcp")
    with StoreClient(server.address, _SECRET, 0, 1, 5.0) as store:
        store.set("1/mesh/0", place_of(_identity(0, 2), None, [address], wiring).encode())
        with pytest.raises(StartTimeoutError, match="rank 1: no link to rank 0 within"):
            _join(server, 1, 2, wiring, 0.4)
    listener.close()


def test_impostor_that_listens_is_refused(server: StoreServer) -> None:
    listener, address = endpoints.listen("unix")
    listener.setblocking(True)

    def impostor() -> None:
        connection, _ = listener.accept()
        with connection:
            hello = connection.recv(256)
            connection.sendall(hello[:12] + bytes(64))
            connection.recv(256)

    thread = threading.Thread(target=impostor)
    thread.start()
    with StoreClient(server.address, _SECRET, 0, 1, 5.0) as store:
        store.set("1/mesh/0", place_of(_identity(0, 2), None, [address], "shm").encode())
        with pytest.raises(AuthenticationError, match="rank 1: rank 0"):
            _join(server, 1, 2, "shm", 5.0)
    thread.join()
    listener.close()


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_garbage_and_crowds_do_not_disturb(server: StoreServer, wiring: str) -> None:
    generator = random.Random(7)
    with ThreadPoolExecutor(4) as pool:
        early = [pool.submit(_join, server, rank, 3, wiring) for rank in (0, 1)]
        attacked = StoreClient(server.address, _SECRET, 5, 1, 5.0)
        told = attacked.wait(["1/mesh/0", "1/mesh/1"])
        addresses = [decode(rank, value).addresses[0] for rank, value in enumerate(told)]
        crowd = [endpoints.connect(address, 5.0) for address in addresses for _ in range(100)]
        for connection in crowd[::2]:
            try:
                connection.sendall(generator.randbytes(generator.randrange(1, 300)))
            except ConnectionError:
                pass
        begin = time.monotonic()
        late = pool.submit(_join, server, 2, 3, wiring)
        meshes = [rank.result() for rank in [*early, late]]
        assert time.monotonic() - begin < within(2)
    attacked.close()
    for connection in crowd:
        connection.close()
    assert [len(links) for links in meshes] == ([6, 5, 5] if wiring == "tcp" else [4, 3, 3])
    _close(meshes)


def test_who_has_proved_itself_waits_for_the_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acceptor that is slow to say so may have taken the connection: another one would replace it there,
    where nobody waits any more.
    """
    monkeypatch.setattr(dialler, "HANDSHAKE_SECONDS", 1.0)
    listener, address = endpoints.listen("tcp")
    listener.setblocking(True)
    accepted = []

    def slow_acceptor() -> None:
        for connection in iter(lambda: listener.accept()[0], None):
            accepted.append(connection)
            acceptor = Acceptor(_SECRET, lambda _: True)
            connection.sendall(acceptor.feed(connection.recv(acceptor.wanted())))
            welcome = acceptor.feed(connection.recv(acceptor.wanted()))
            time.sleep(1.5)
            connection.sendall(welcome)

    def until_closed() -> None:
        with contextlib.suppress(OSError):
            slow_acceptor()

    thread = threading.Thread(target=until_closed)
    thread.start()
    with linker.Linker(1, 1, _SECRET, {(0, Role.DATA)}, [], ["rank 0", "rank 1"]) as made:
        made.dial([address], 0, Role.DATA)
        made.run(time.monotonic(), within(5.0))
        _close([made.take_links()])
    assert len(accepted) == 1
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    accepted[0].close()
    listener.close()


def test_a_link_that_comes_before_the_start_is_over_has_to_wait_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A faster rank may want it while this one still waits for others."""
    listener, address = endpoints.listen("tcp")
    names = ["rank 0", "rank 1", "rank 2"]
    with linker.Linker(0, 1, _SECRET, {(1, Role.DATA)}, [listener], names) as made:
        thread = threading.Thread(target=_run_in_vain, args=(made,))
        thread.start()
        with endpoints.connect(address, 5.0) as connection, pytest.raises(ConnectionError):
            authenticate(connection, _SECRET, Terms(Role.CONTROL, 2, 0, 1), 5.0)
        assert not caplog.records
        with endpoints.connect(address, 5.0) as connection, pytest.raises(ConnectionError):
            authenticate(connection, _SECRET, Terms(Role.WATCH, 2, 0, 1), 5.0)
        thread.join()
        assert "unexpected terms" in caplog.text
    listener.close()


def _run_in_vain(made: linker.Linker) -> None:
    with pytest.raises(StartTimeoutError):
        made.run(time.monotonic(), within(0.5))


def test_who_gives_an_attempt_up_before_it_is_heard_is_no_stranger(caplog: pytest.LogCaptureFixture) -> None:
    """This rank was slow, and the peer dials again; where it hangs up on an answer, it may be a stranger."""
    listener, address = endpoints.listen("tcp")
    expected = Connector(_SECRET, Terms(Role.WATCH, 1, 0, 1)).greeting()
    with linker.Linker(0, 1, _SECRET, {(1, Role.WATCH)}, [listener], ["rank 0", "rank 1"]) as made:
        with endpoints.connect(address, 5.0) as early:
            early.sendall(expected)
        _run_in_vain(made)
        assert not caplog.records
        thread = threading.Thread(target=_run_in_vain, args=(made,))
        thread.start()
        with endpoints.connect(address, 5.0) as late:
            late.sendall(expected)
            assert late.recv(1)
        thread.join()
        assert "refused a connection" in caplog.text
    listener.close()


def test_a_slow_rank_is_not_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler, "HANDSHAKE_SECONDS", 0.1)
    calls = []
    connect = endpoints.start_connect
    monkeypatch.setattr(endpoints, "start_connect", lambda to: calls.append(to) or connect(to))
    listener, address = endpoints.listen("tcp")
    wanted = {(0, Role.DATA)}
    with ThreadPoolExecutor() as pool, linker.Linker(1, 1, _SECRET, wanted, [], ["0", "1"]) as caller:
        caller.dial([address], 0, Role.DATA)
        calling = pool.submit(caller.run, time.monotonic(), within(10.0))
        time.sleep(0.5)
        with linker.Linker(0, 1, _SECRET, {(1, Role.DATA)}, [listener], ["0", "1"]) as slow:
            slow.run(time.monotonic(), within(10.0))
            calling.result()
            _close([caller.take_links(), slow.take_links()])
    assert calls == [address]
    listener.close()


def test_a_peer_that_has_said_who_it_is_may_be_slow_to_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeeper, "HANDSHAKE_SECONDS", 0.1)
    listener, address = endpoints.listen("tcp")
    with (
        ThreadPoolExecutor() as pool,
        linker.Linker(0, 1, _SECRET, {(1, Role.DATA)}, [listener], ["0", "1"]) as made,
    ):
        accepting = pool.submit(made.run, time.monotonic(), within(10.0))
        with endpoints.connect(address, 5.0) as connection:
            connector = Connector(_SECRET, Terms(Role.DATA, 1, 0, 1))
            connection.sendall(connector.greeting())
            answer = connector.feed(connection.recv(connector.wanted(), socket.MSG_WAITALL))
            time.sleep(0.4)
            connection.sendall(answer)
            accepting.result()
        _close([made.take_links()])
    listener.close()


def test_a_stranger_is_told_of_when_its_descriptor_is_free() -> None:
    """The log may have to open files, and none be left."""
    listener, address = endpoints.listen("tcp")
    seen = []
    with selectors.DefaultSelector() as selector, endpoints.connect(address, 5.0) as stranger:
        stranger.settimeout(5.0)
        gate = gatekeeper.Gatekeeper(
            [listener],
            selector,
            _SECRET,
            lambda _: True,
            lambda *_: None,
            lambda _: seen.append(stranger.recv(1)),
        )
        stranger.sendall(bytes(Acceptor(_SECRET, lambda _: True).wanted()))
        while not gate.refusals.count:
            for key, _ in selector.select(within(5.0)):
                key.data()
        gate.close()
    assert seen == [b""]


def test_unknown_wiring(server: StoreServer) -> None:
    with pytest.raises(ValueError, match="shm, tcp"):
        _join(server, 0, 2, "pigeon")
