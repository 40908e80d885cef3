"""Links that are made after the start, between ranks that are threads here, each with a core of its own."""

import contextlib
import errno
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from load import within

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.mesh.linker import Link
from horovod.bootstrap.mesh.on_demand import OnDemand
from horovod.bootstrap.network import endpoints
from horovod.bootstrap.network.auth import LAUNCHER_RANK, Role, Terms, authenticate
from horovod.bootstrap.network.frames import Sealer
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.messages import Tag, encode
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.store.verdicts import Kind

_SECRET = bytes(range(32))
_CONTROL, _DATA = int(Role.CONTROL), int(Role.DATA)


class _Core:
    """Wants links, and keeps what it is given."""

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._wanted: list[tuple[int, int]] | None = []
        self.links: list[Link] = []
        self.launchers: list[tuple[int, bytes, int]] = []
        self.given_up: list[tuple[int, str]] = []

    def want(self, peer: int, role: int) -> None:
        assert self._wanted is not None
        self._wanted.append((peer, role))
        os.eventfd_write(self._bell, 1)

    def stop(self) -> None:
        self._wanted = None
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        os.close(self._bell)
        for link in self.links:
            os.close(link[0])

    def link_requests_descriptor(self) -> int:
        return os.dup(self._bell)

    def take_link_requests(self) -> list[tuple[int, int]] | None:
        with contextlib.suppress(BlockingIOError):
            if self._wanted is not None:
                os.eventfd_read(self._bell)
        wanted = self._wanted
        if wanted is not None:
            self._wanted = []
        return wanted

    def add_link(self, link: Link) -> None:
        self.links.append(link)

    def add_launcher(self, fd: int, key: bytes, frames: int) -> None:
        self.launchers.append((fd, key, frames))

    def give_up_link(self, peer: int, reason: str) -> None:
        self.given_up.append((peer, reason))


def _no_launcher() -> StoreClient:
    raise BootstrapError("the launcher is away")


class _Ranks:
    """So many of them, on one network."""

    def __init__(
        self, size: int, timeout: float = 20.0, missing: tuple[int, ...] = (), late: tuple[int, ...] = ()
    ) -> None:
        listening = [endpoints.listen("tcp") for _ in range(size)]
        self.addresses = [address for _, address in listening]
        self.cores = [_Core() for _ in range(size)]
        names = [f"rank {rank}" for rank in range(size)]
        self.ranks = [
            OnDemand(rank, 7, _SECRET, [listener], names, set(), self._addresses_of, timeout, _no_launcher)
            for rank, (listener, _) in enumerate(listening)
        ]
        for rank, core in enumerate(self.cores):
            if rank in missing:
                listening[rank][0].close()
            elif rank not in late:
                self.ranks[rank].start(core)

    def _addresses_of(self, peer: int) -> list[str]:
        return [self.addresses[peer]]

    def stop(self) -> None:
        for core, rank in zip(self.cores, self.ranks, strict=True):
            core.stop()
            rank.close()
            core.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + within(10)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    yield
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def _check_pair(ranks: _Ranks, lower: int, higher: int, role: int) -> None:
    """That both ends have the one link, and that it carries bytes."""
    (near,) = [link for link in ranks.cores[lower].links if link[1:3] == (higher, role)]
    (far,) = [link for link in ranks.cores[higher].links if link[1:3] == (lower, role)]
    assert (near[3], near[4]) == (far[4], far[3]) and near[3] != near[4]
    os.write(near[0], b"there")
    os.write(far[0], b"and back")
    assert (os.read(far[0], 16), os.read(near[0], 16)) == (b"there", b"and back")


@pytest.mark.parametrize("asking", [[1], [0], [0, 1]])
def test_whoever_wants_it_there_is_one_link(asking: list[int]) -> None:
    ranks = _Ranks(2)
    for rank in asking:
        for role in (_CONTROL, _DATA):
            ranks.cores[rank].want(1 - rank, role)
    _until(lambda: all(len(core.links) == 2 for core in ranks.cores))
    _check_pair(ranks, 0, 1, _CONTROL)
    _check_pair(ranks, 0, 1, _DATA)
    ranks.stop()


@pytest.mark.parametrize("seed", range(5))
def test_all_want_links_to_all_at_random_moments(seed: int) -> None:
    size = 6
    ranks = _Ranks(size)
    wanted = [
        (rank, peer, role) for rank in range(size) for peer in range(size) for role in (_CONTROL, _DATA)
    ]
    wanted = [each for each in wanted if each[0] != each[1]]
    dice = random.Random(seed)
    dice.shuffle(wanted)
    for rank, peer, role in wanted:
        ranks.cores[rank].want(peer, role)
        if dice.random() < 0.2:
            time.sleep(dice.random() * 0.01)
    _until(lambda: all(len(core.links) == 2 * (size - 1) for core in ranks.cores))
    for higher in range(size):
        for lower in range(higher):
            _check_pair(ranks, lower, higher, _CONTROL)
            _check_pair(ranks, lower, higher, _DATA)
    assert not any(core.given_up for core in ranks.cores)
    ranks.stop()


@pytest.mark.parametrize("asking", [0, 2])
def test_a_rank_that_does_not_answer_is_named_in_time(asking: int) -> None:
    ranks = _Ranks(3, timeout=0.3, missing=(1,))
    ranks.cores[asking].want(1, _DATA)
    _until(lambda: bool(ranks.cores[asking].given_up))
    ((peer, reason),) = ranks.cores[asking].given_up
    assert peer == 1 and f"rank {asking}: no data link to rank 1 within 0.3 s. Calls to rank 1:" in reason
    assert "refused" in reason
    ranks.stop()


def test_who_knocked_in_time_waits_longer_than_who_then_calls_in_vain() -> None:
    ranks = _Ranks(2, timeout=0.3)
    listener, ranks.addresses[0] = endpoints.listen("tcp")
    listener.close()  # as behind a firewall that lets connections pass one way
    ranks.cores[0].want(1, _DATA)
    _until(lambda: bool(ranks.cores[1].given_up))
    ((peer, reason),) = ranks.cores[1].given_up
    assert peer == 0 and "Calls to rank 0:" in reason and "refused" in reason
    assert not ranks.cores[0].given_up
    ranks.stop()


@pytest.mark.parametrize("asking", [0, 1])
def test_a_rank_that_listens_and_takes_no_call_yet_is_waited_for(asking: int) -> None:
    """Such as one whose program holds the interpreter's lock: it lives, as those know that watch it."""
    ranks = _Ranks(2, timeout=0.2, late=(1 - asking,))
    ranks.cores[asking].want(1 - asking, _DATA)
    time.sleep(1.0)
    assert not ranks.cores[asking].given_up
    ranks.ranks[1 - asking].start(ranks.cores[1 - asking])
    _until(lambda: all(core.links for core in ranks.cores))
    _check_pair(ranks, 0, 1, _DATA)
    ranks.stop()


def test_a_call_that_is_under_way_ends_with_the_core() -> None:
    silent, address = endpoints.listen("tcp")  # accepts in its kernel alone, like a process that is stopped
    ranks = _Ranks(2)
    ranks.addresses[0] = address
    ranks.cores[1].want(0, _CONTROL)
    silent.setblocking(True)
    connection, _ = silent.accept()
    began = time.monotonic()
    ranks.stop()
    assert time.monotonic() - began < within(1)
    connection.close()
    silent.close()


def test_nobody_else_and_no_other_generation_gets_a_link(caplog: pytest.LogCaptureFixture) -> None:
    ranks = _Ranks(2)
    for secret, terms in (
        (bytes(32), Terms(Role.DATA, 1, 0, 7)),
        (_SECRET, Terms(Role.DATA, 1, 0, 6)),
        (_SECRET, Terms(Role.DATA, 2, 0, 7)),
        (_SECRET, Terms(Role.DATA, 0, 0, 7)),
        (_SECRET, Terms(Role.WATCH, 1, 0, 7)),
        (_SECRET, Terms(Role.DATA, 1, 1, 7)),
    ):
        with endpoints.connect(ranks.addresses[0], 5.0) as connection:
            with pytest.raises((BootstrapError, ConnectionError)):
                authenticate(connection, secret, terms, 5.0)
    assert not ranks.cores[0].links and "refused a connection" in caplog.text
    ranks.stop()


def test_a_launcher_whose_connection_broke_is_reached_again_and_hears_the_rank() -> None:
    server = StoreServer(_SECRET, 2, "tcp")
    server.start()
    first = StoreClient(server.address, _SECRET, 1, 1, 5.0)
    rank, core = OnDemand(1, 7, _SECRET, [], [], set(), lambda _: [], 1.0, lambda: first.again(5.0)), _Core()
    rank.start(core)
    first.close()
    core.want(LAUNCHER_RANK, Role.LAUNCHER)
    _until(lambda: bool(core.launchers))
    descriptor, key, frames = core.launchers[0]
    with socket.socket(fileno=descriptor) as connection:
        sealer = Sealer(key)
        for _ in range(frames):
            sealer.seal(b"")
        died = [b"%d" % Kind.DIED, b"0", b"-1", b"0", b"it died"]
        connection.sendall(sealer.seal(encode(Tag.VERDICT, died)))
    assert [(said.observer, said.culprit) for said in server.verdicts([1], 5.0)] == [(1, 0)]
    core.stop()
    rank.close()
    core.close()
    server.close()


def test_a_launcher_that_cannot_be_reached_again_is_given_up() -> None:
    ranks = _Ranks(1)
    ranks.cores[0].want(LAUNCHER_RANK, Role.LAUNCHER)
    _until(lambda: bool(ranks.cores[0].given_up))
    assert ranks.cores[0].given_up == [(LAUNCHER_RANK, "the launcher is away")]
    ranks.stop()


def test_before_its_start_it_only_closes_what_it_has() -> None:
    listener, _ = endpoints.listen("tcp")
    OnDemand(0, 7, _SECRET, [listener], ["rank 0"], set(), lambda _: [], 1.0, _no_launcher).close()


def test_a_forked_child_keeps_nothing_and_disturbs_nothing() -> None:
    before = _sockets()
    ranks = _Ranks(2)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for rank in ranks.ranks:
            rank.close_in_child()
        os.write(writing, b"%d" % _sockets())
        os._exit(0)
    os.waitpid(child, 0)
    assert select.select([reading], [], [], 5)[0] and int(os.read(reading, 16)) == before
    os.close(reading)
    os.close(writing)
    ranks.cores[0].want(1, _DATA)
    _until(lambda: all(core.links for core in ranks.cores))
    _check_pair(ranks, 0, 1, _DATA)
    ranks.stop()


def test_a_child_that_is_forked_after_the_end_has_nothing_to_close() -> None:
    threads = threading.active_count()
    ranks = _Ranks(1)
    ranks.cores[0].stop()
    _until(lambda: threading.active_count() == threads)
    child = os.fork()
    if child == 0:
        ended_well = False
        with contextlib.suppress(BaseException):
            ranks.ranks[0].close_in_child()
            ended_well = True
        os._exit(0 if ended_well else 1)
    assert os.waitpid(child, 0)[1] == 0
    ranks.stop()


def test_a_start_that_fails_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise OSError(errno.EMFILE, "no descriptor is left")

    for where, what in ((_Core, "link_requests_descriptor"), (threading.Thread, "start")):
        core, (listener, _) = _Core(), endpoints.listen("tcp")
        rank = OnDemand(0, 7, _SECRET, [listener], ["rank 0"], set(), lambda _: [], 1.0, _no_launcher)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no descriptor"):
            patch.setattr(where, what, fails)
            rank.start(core)
        rank.close()
        core.close()


def _sockets() -> int:
    """How many this process has open."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the list
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    return count
