"""The rendezvous store over real sockets, with clients as threads, and with enemies."""

import contextlib
import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.errors import AbandonedError, AuthenticationError, BootstrapError, StartTimeoutError
from horovod.bootstrap.network import endpoints, gatekeeper
from horovod.bootstrap.network.auth import LAUNCHER_RANK, Role, Terms, authenticate
from horovod.bootstrap.network.frames import Sealer
from horovod.bootstrap.store import arrivals
from horovod.bootstrap.store import messages as store_messages
from horovod.bootstrap.store import server as store
from horovod.bootstrap.store.client import StoreClient, dial
from horovod.bootstrap.store.messages import Tag, decode, encode
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.store.verdicts import Kind

_SECRET = bytes(range(32))


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    before = len(os.listdir("/proc/self/fd"))
    server = StoreServer(_SECRET, 8, request.param)
    server.start()
    yield server
    server.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def _client(server: StoreServer, rank: int = 0, timeout: float = 5.0) -> StoreClient:
    return StoreClient(server.address, _SECRET, rank, 1, timeout)


def _raw(server: StoreServer) -> socket.socket:
    return endpoints.connect(server.address, 5.0)


def _until(condition: object, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + within(seconds)
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_set_get_add(server: StoreServer) -> None:
    with _client(server) as one, _client(server, 1) as two:
        one.set("1/a/0", b"\x00value")
        assert two.get("1/a/0") == b"\x00value"
        one.set("1/a/0", b"")
        assert two.get("1/a/0") == b""
        assert [one.add("1/n", 2), two.add("1/n", -5), one.add("1/n", 0)] == [2, -3, -3]


def test_wait_returns_when_the_last_rank_has_arrived(server: StoreServer) -> None:
    def rank(number: int) -> list[bytes]:
        with _client(server, number) as client:
            time.sleep(0.02 * number)
            client.set(f"1/x/{number}", b"%d" % number)
            return client.wait([f"1/x/{other}" for other in range(8)])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(rank, range(8))) == [[b"%d" % n for n in range(8)]] * 8


def test_the_launcher_is_told_of_a_start_that_no_rank_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_SLACK_SECONDS", 0.1)
    told = threading.Event()
    server = StoreServer(_SECRET, 2)
    server.watch_start(0.2, told.set)
    server.start()
    with contextlib.closing(server), _client(server) as client:
        assert not told.wait(0.5) and server.late() is None
        client.set("1/mesh/0", b"here")
        assert told.wait(within(5))
        late = server.late()
        assert late is not None and (late.kind, late.culprit) == (Kind.ABSENT, 1)
        assert server.late() is None and server.verdicts((), 0.0) == [late]


def test_timeout_names_the_ranks_that_never_arrived(server: StoreServer) -> None:
    with _client(server) as client:
        client.set("1/x/1", b"")
        begin = time.monotonic()
        with pytest.raises(
            StartTimeoutError, match=r"rank 0 waited 0\.2 s: ranks 0, 2 never .*--start-timeout"
        ):
            client.wait(["1/x/0", "1/x/1", "1/x/2"], 0.2123)
        assert 0.15 < time.monotonic() - begin < within(2)
        client.set("1/x/0", b"late")
        assert client.get("1/x/0") == b"late"


def test_who_waits_for_a_rank_that_has_ended_is_told_at_once(server: StoreServer) -> None:
    with _client(server) as early, _client(server, 1) as late, ThreadPoolExecutor(1) as pool:
        late.set("1/x/1", b"here")
        waiting = pool.submit(early.wait, ["1/x/1", "1/x/2", "1/x/3"], 60.0)
        time.sleep(0.05)
        server.ranks_ended([1])  # it has set what it had to
        assert not wait_for_futures([waiting], 0.05).done
        server.ranks_ended([3])
        text = r"rank 0: rank 3 ended with exit status 0 and did not come to hvd.init\(\)"
        with pytest.raises(BootstrapError, match=text) as error:
            waiting.result(within(5))
        assert error.value.absent == (3,)
        with pytest.raises(BootstrapError, match=r"rank 1: rank 3 ended"):
            late.wait(["1/x/3"], 60.0)
        assert early.get("1/x/1") == b"here"


def test_the_launcher_hears_who_did_not_come(server: StoreServer) -> None:
    for observer, absent in [(0, [2]), (1, [2, 3])]:
        with _client(server, observer) as client:
            with pytest.raises(StartTimeoutError) as error:
                client.wait([f"1/x/{rank}" for rank in absent], 0.05)
            client.blame(error.value.absent, str(error.value))
    said = {verdict.observer: verdict for verdict in server.verdicts([0, 1], within(5))}
    assert {observer: (verdict.kind, verdict.culprit) for observer, verdict in said.items()} == {
        0: (Kind.ABSENT, 2),
        1: (Kind.ABSENT, None),
    }
    assert [said[observer].absent for observer in (0, 1)] == [(2,), (2, 3)]
    assert "rank 2 never arrived" in said[0].reason and "ranks 2, 3" in said[1].reason


def test_wrong_secret_is_refused_at_once(server: StoreServer) -> None:
    begin = time.monotonic()
    with pytest.raises(AuthenticationError, match=r"rank 3.*secret"):
        StoreClient(server.address, b"w" * 32, 3, 1, 10.0)
    assert time.monotonic() - begin < within(2)
    _until(lambda: server.dropped == 1)


def test_refused_connections_are_told_with_their_origin_and_not_too_often() -> None:
    said: list[str] = []
    for kind, origin in (("unix", f"process {os.getpid()} of user {os.geteuid()}"), ("tcp", "127.0.0.1:")):
        said.clear()
        server = StoreServer(_SECRET, 8, kind, said.append)
        server.start()
        for _ in range(5):
            with _raw(server) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 200)
                connection.recv(1)
        _until(lambda server=server: server.dropped == 5)
        server.close()
        assert len(said) == 1 and f"refused a connection from {origin}" in said[0], said
        assert "not a link of this version" in said[0]


def test_more_values_than_one_answer_holds_arrive_in_order(server: StoreServer) -> None:
    values = [os.urandom(600) for _ in range(2500)]
    keys = [f"place/{rank}" for rank in range(len(values))]
    with _client(server) as client:
        for key, value in zip(keys, values, strict=True):
            client.set(key, value)
        assert client.wait(keys) == values
        with pytest.raises(StartTimeoutError, match="ranks 2500, 2501 never arrived") as caught:
            client.wait([*keys, "place/2500", "place/2501"], 0.3)
        assert caught.value.absent == (2500, 2501)
        server.ranks_ended([2501])
        with pytest.raises(BootstrapError, match="rank 2501 ended"):
            client.wait([*keys, "place/2500", "place/2501"], 30.0)


def _verdict(kind: int, culprit: int, reason: bytes) -> bytes:
    return encode(Tag.VERDICT, [b"%d" % kind, b"%d" % culprit, b"-1", b"0", reason])


_CLAIM = encode(Tag.CLAIM, [bytes(16), b"a process"])


def _acting(server: StoreServer, rank: int, generation: int = 1) -> tuple[socket.socket, Sealer]:
    """A link by which a rank may say what it likes."""
    link, keys = dial(server.address, _SECRET, rank, generation, 5.0)
    sealer = Sealer(keys.send)
    link.sendall(sealer.seal(_CLAIM))
    link.recv(4096)
    return link, sealer


def _rest(link: socket.socket) -> bytes:
    """All that comes until the end."""
    link.settimeout(5)
    return b"".join(iter(lambda: link.recv(4096), b""))


def test_verdicts_of_ranks_that_have_ended_are_all_there(server: StoreServer) -> None:
    for rank in range(7):
        link, sealer = _acting(server, rank)
        with link:
            link.sendall(sealer.seal(_verdict(1, 7, b"first")) + sealer.seal(_verdict(2, 0, b"later")))
    _until(lambda: len(server.verdicts(range(8), 5.0)) == 7)  # a link counts once it is admitted
    verdicts = server.verdicts(range(8), 5.0)
    assert {(verdict.culprit, verdict.reason) for verdict in verdicts} == {(7, "first")}


def test_a_new_start_forgets_the_verdict_and_a_malformed_one_ends_the_link(server: StoreServer) -> None:
    link, sealer = _acting(server, 1)
    with link:
        link.sendall(sealer.seal(_verdict(1, 0, b"")))
    _until(lambda: len(server.verdicts([1], 5.0)) == 1)
    link, sealer = _acting(server, 1, generation=2)
    with link:
        assert server.verdicts([], 0.0) == []
        link.sendall(sealer.seal(_verdict(1, 8, b"")))
        assert _rest(link) == b""
    assert server.verdicts(range(8), 5.0) == []


def test_the_connection_of_a_started_rank_goes_on_where_the_client_stopped(server: StoreServer) -> None:
    client = _client(server, 3)
    client.set("1/x/3", b"")
    link = client.detach()
    sealer = Sealer(link.key)
    for _ in range(link.frames):  # the core counts on from there
        sealer.seal(b"")
    with socket.socket(fileno=link.descriptor) as connection:
        assert link.frames == 2 and connection.gettimeout() is None
        connection.sendall(sealer.seal(_verdict(1, 7, b"it died")))
        _until(lambda: [verdict.observer for verdict in server.verdicts([], 0.0)] == [3])
    assert len(server.verdicts([3], 5.0)) == 1


def test_rank_outside_the_job_is_refused(server: StoreServer) -> None:
    for terms in (Terms(Role.LAUNCHER, 8, LAUNCHER_RANK, 1), Terms(Role.DATA, 0, LAUNCHER_RANK, 1)):
        with _raw(server) as connection, pytest.raises(ConnectionError):
            authenticate(connection, _SECRET, terms, 5.0)


def test_absent_server_is_an_error_after_the_timeout() -> None:
    begin = time.monotonic()
    with pytest.raises(StartTimeoutError, match="horovodrun"):
        StoreClient("unix:@horovod-nobody", _SECRET, 0, 1, 0.3)
    assert time.monotonic() - begin < within(2)


def test_garbage_is_dropped_and_changes_nothing(server: StoreServer, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(canary),)

    generator = random.Random(5)
    attacks = [generator.randbytes(generator.randrange(1, 400)) for _ in range(60)]
    attacks += [
        pickle.dumps(Bomb()),
        b"GET / HTTP/1.1\r\n\r\n" * 9,
        b"SSH-2.0-x\r\n" * 9,
        b"\x16\x03\x01" * 40,
    ]
    with _client(server) as client:
        client.set("1/a/0", b"safe")
        for attack in attacks:
            with _raw(server) as connection:
                try:
                    connection.sendall(attack)
                except ConnectionError:
                    pass
        _until(lambda: server.dropped == len(attacks))
        assert client.get("1/a/0") == b"safe"
    assert not canary.exists()


def test_garbage_after_authentication_ends_that_connection_only(server: StoreServer) -> None:
    with _client(server, 1) as honest:
        for payload in (pickle.dumps(list), encode(Tag.OK), encode(Tag.ADD, [b"k", b"x"]), b""):
            connection, sealer = _acting(server, 0)
            with connection:
                connection.sendall(sealer.seal(payload))
                assert _rest(connection) == b""
        for payload in (encode(Tag.SET, [b"1/mesh/0", b"x"]), encode(Tag.CLAIM, [b"short", b"a process"])):
            connection, keys = dial(server.address, _SECRET, 0, 1, 5.0)
            with connection:  # what comes before a claim
                connection.sendall(Sealer(keys.send).seal(payload))
                assert _rest(connection) == b""
        connection, keys = dial(server.address, _SECRET, 0, 1, 5.0)
        with connection:
            connection.sendall(bytes(100))
            assert connection.recv(1) == b""
        honest.set("1/a/0", b"fine")
        assert honest.get("1/a/0") == b"fine"


def test_crowd_of_idle_connections_keeps_nobody_out(server: StoreServer) -> None:
    crowd = [_raw(server) for _ in range(3 * gatekeeper.UNPROVEN_LIMIT)]
    begin = time.monotonic()
    with _client(server) as client:
        client.set("1/a/0", b"in")
    assert time.monotonic() - begin < within(1)
    _until(lambda: server.dropped >= 2 * gatekeeper.UNPROVEN_LIMIT)
    for connection in crowd:
        connection.close()


def test_slow_handshake_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeeper, "HANDSHAKE_SECONDS", 0.2)
    server = StoreServer(_SECRET, 1)
    server.start()
    with _raw(server) as connection:
        connection.sendall(b"H")
        connection.settimeout(3)
        assert connection.recv(1) == b""
    server.close()


def test_launcher_link_ends_with_the_server() -> None:
    server = StoreServer(_SECRET, 2)
    server.start()
    link, _ = dial(server.address, _SECRET, 1, 1, 5.0)
    link.settimeout(0.1)
    with pytest.raises(TimeoutError):
        link.recv(1)
    closing = threading.Thread(target=server.close)
    closing.start()
    link.settimeout(3)
    assert link.recv(1) == b""
    closing.join()
    link.close()


def test_memory_is_bounded(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MEMORY_QUOTA", 10000)
    with _client(server) as client:
        client.set("a", bytes(9000))
        client.set("a", bytes(9000))
        with pytest.raises(BootstrapError, match="full"):
            client.set("b", bytes(2000))
        with pytest.raises(BootstrapError, match="256"):
            client.set("k" * 257, b"")


def test_sockets_are_not_inherited(server: StoreServer) -> None:
    with _client(server):
        _until(lambda: len(server._clients) == 1)
        links = [(fd, _target(fd)) for fd in map(int, os.listdir("/proc/self/fd"))]
        sockets = [fd for fd, target in links if "socket" in target and fd > 2]
        assert len(sockets) >= 3 and not any(map(os.get_inheritable, sockets))


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


@given(st.sampled_from(Tag), st.lists(st.binary(max_size=40), max_size=6))
def test_messages_round_trip(tag: Tag, fields: list[bytes]) -> None:
    assert decode(encode(tag, fields)) == (tag, fields)


@given(st.binary(max_size=80))
def test_malformed_messages_are_errors(data: bytes) -> None:
    try:
        tag, fields = decode(data)
    except BootstrapError:
        return
    assert encode(tag, fields) == data


def test_message_with_too_many_fields_is_refused() -> None:
    with pytest.raises(BootstrapError, match="too many"):
        decode(bytes([Tag.WAIT]) + (store_messages.MAX_FIELDS + 1).to_bytes(4, "big"))


def test_whoever_comes_to_an_abandoned_start_is_told_at_once(server: StoreServer) -> None:
    with _client(server, 0) as linked, _client(server, 1) as waits:
        linked.set("1/linked/0", b"")
        server.abandon_start()
        with pytest.raises(AbandonedError):
            waits.get("1/mesh/2", 20.0)
        began = time.monotonic()
        with pytest.raises(AbandonedError):
            _client(server, 2, 20.0)
        assert time.monotonic() - began < within(2.0)
        linked.set("1/more", b"x")
        assert linked.get("1/more") == b"x"
    assert server.dropped == 0
