"""The launcher's talk with the workers of an elastic job, over real sockets, with workers as threads."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import within

from horovod.bootstrap import secret
from horovod.bootstrap.errors import AbandonedError, BootstrapError
from horovod.bootstrap.membership import Membership
from horovod.bootstrap.network.frames import Sealer
from horovod.bootstrap.start_settings import ADDRESS_VARIABLE, WORKER_VARIABLE
from horovod.bootstrap.store import server as store
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.messages import Tag, encode
from horovod.bootstrap.store.server import StoreServer
from horovod.bootstrap.store.verdicts import Kind
from horovod.elastic.driver.numbering import Candidate, Member, number
from horovod.runner.elastic.roster import Roster

_ROOT = bytes(range(32))
_SECONDS = 30.0  # within which each step comes on a busy machine


class SlowStore(StoreServer):
    """The thread of the store runs between any two steps of the launcher's."""

    def ranks_ended(self, ranks: object) -> None:
        super().ranks_ended(ranks)  # type: ignore[arg-type]
        time.sleep(0.2)

    def _take_verdict(self, observer: int, fields: list[bytes]) -> None:
        time.sleep(0.2)
        super()._take_verdict(observer, fields)


class Launcher:
    def __init__(self, start_seconds: float = 30.0) -> None:
        self.woken = threading.Event()
        self.roster = Roster(_ROOT, lambda key, size: SlowStore(key, size), self.woken.set, start_seconds)
        self.members: list[Membership] = []

    def worker(self, worker: int) -> Membership:
        environment = {ADDRESS_VARIABLE: self.roster.address, WORKER_VARIABLE: str(worker)}
        self.members.append(Membership(environment, _ROOT, _SECONDS))
        return self.members[-1]

    def form(self, generation: int, *workers: int) -> list[Member]:
        members = number([Candidate(worker, "a") for worker in workers])
        self.roster.form(generation, members)
        return members

    def until_waiting(self, *workers: int) -> None:
        asked: set[int] = set()
        deadline = time.monotonic() + _SECONDS
        while not asked >= set(workers):
            assert time.monotonic() < deadline
            asked |= {worker for worker, _ in self.roster.take_waiting()}
            time.sleep(0.005)

    def meeting(self, rank: int, generation: int = 1) -> StoreClient:
        """Of the current generation."""
        assert self.roster._store is not None
        own = secret.of_generation(_ROOT, generation)
        return StoreClient(self.roster._store.address, own, rank, generation, _SECONDS)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    for member in launcher.members:
        member._line.close()
    launcher.roster.close()


def test_places_are_told_however_much_is_in_the_store(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MEMORY_QUOTA", 4000)
    worker = launcher.worker(0)
    with ThreadPoolExecutor() as pool:
        for generation in range(1, 50):
            place = pool.submit(worker.join)
            launcher.until_waiting(0)
            launcher.form(generation, 0)
            assert place.result(_SECONDS).generation == generation
    assert len(launcher.roster._server._table) < 5  # a place that was told is kept no longer


def test_a_worker_says_nothing_in_the_name_of_the_launcher(launcher: Launcher) -> None:
    client = launcher.worker(0)._line._client
    for key in ("place/1/1.", "update/1.", "waiting/1"):
        with pytest.raises(BootstrapError, match="refused"):
            client.set(key, b"")
        with pytest.raises(BootstrapError, match="refused"):
            client.add(key, 1)
    assert launcher.roster.take_waiting() == []


def test_the_cause_of_an_end_is_what_a_rank_said_before_it_left(launcher: Launcher) -> None:
    launcher.form(1, 0, 1)
    with launcher.meeting(1) as client:
        client.set("1/linked/1", b"")
        link = client.detach()
    sealer = Sealer(link.key)
    for _ in range(link.frames):
        sealer.seal(b"")
    verdict = [b"%d" % Kind.STALL, b"-1", b"-1", b"0", b"a deadlock"]
    with socket.socket(fileno=link.descriptor) as connection:
        connection.sendall(sealer.seal(encode(Tag.VERDICT, verdict)))
    assert launcher.roster.cause() == "a deadlock"


def test_who_waits_in_a_start_that_a_worker_has_left_by_its_end_may_start_again(launcher: Launcher) -> None:
    launcher.form(1, 0, 1, 2)
    with ThreadPoolExecutor() as pool, launcher.meeting(0) as client:
        waits = pool.submit(client.get, "1/mesh/2")
        time.sleep(0.1)
        launcher.roster.ended([2])
        with pytest.raises(AbandonedError):
            waits.result(_SECONDS)


def test_who_comes_late_to_a_start_that_is_given_up_is_told_so_at_once(launcher: Launcher) -> None:
    launcher.form(1, 0, 1, 2)
    with launcher.meeting(0) as client:
        client.set("1/linked/0", b"")
        launcher.roster.ended([2])
        begin = time.monotonic()
        with pytest.raises(AbandonedError):
            launcher.meeting(1)
        assert time.monotonic() - begin < within(2.0)
        client.set("1/any/0", b"")  # who has come through keeps its link


def test_the_launcher_wakes_for_a_verdict(launcher: Launcher) -> None:
    launcher.form(1, 0, 1, 2)
    with launcher.meeting(0) as client:
        launcher.woken.clear()
        client.blame([2], "it never came")
        assert launcher.woken.wait(_SECONDS)
        assert launcher.roster.silent() == [(2, 0)]


def test_ranks_that_do_not_reach_several_others_are_apart_and_blame_nobody(launcher: Launcher) -> None:
    launcher.form(1, 4, 5, 6)
    assert launcher.roster.apart() == []
    with launcher.meeting(0) as client:
        launcher.woken.clear()
        client.blame([1, 2], "no link to rank 1, rank 2")
        assert launcher.woken.wait(_SECONDS)
        assert launcher.roster.apart() == [(4, [5, 6])] and launcher.roster.silent() == []


def test_who_is_accused_itself_accuses_in_vain(launcher: Launcher) -> None:
    launcher.form(1, 4, 5, 6)
    with launcher.meeting(0) as first, launcher.meeting(1) as second:
        first.blame([1], "it does not respond")
        while not launcher.roster.silent():
            time.sleep(0.01)
        second.blame([0], "it does not respond")
        time.sleep(0.2)
        assert launcher.roster.silent() == [(5, 4)]


def test_after_a_start_that_failed_the_state_is_synchronized(launcher: Launcher) -> None:
    worker = launcher.worker(0)
    with ThreadPoolExecutor() as pool:
        for generation, comes_through, has_newcomers in ((1, True, True), (2, False, False), (3, True, True)):
            place = pool.submit(worker.join)
            launcher.until_waiting(0)
            launcher.form(generation, 0)
            assert place.result(_SECONDS).has_newcomers is has_newcomers
            assert worker.has_missed is (generation == 3)
            if comes_through:
                worker.use()


def test_members_that_do_nothing_in_a_start_have_a_deadline() -> None:
    launcher = Launcher(start_seconds=0.0)
    launcher.form(1, 4, 5, 6)
    with launcher.meeting(1) as client:
        assert launcher.roster.overdue(time.monotonic()) == []
        client.set("1/mesh/1", b"")
        client.set("1/linked/1", b"")
        due = launcher.roster.next_time()
        assert time.monotonic() < due < time.monotonic() + 10.0
        assert launcher.roster.overdue(due) == [4, 6]
        assert launcher.roster.overdue(due + 1.0) == []
    launcher.roster.close()


def test_a_generation_that_cannot_have_a_store_is_told_to_nobody(launcher: Launcher) -> None:
    worker = launcher.worker(0)
    launcher.form(1, 0, 1)
    refused = [OSError(24, "Too many open files")] * 2
    new_store = launcher.roster._new_store

    def refuses(key: bytes, size: int) -> StoreServer:
        if refused:
            raise refused.pop()
        return new_store(key, size)

    launcher.roster._new_store = refuses
    with ThreadPoolExecutor() as pool:
        place = pool.submit(worker.join)
        launcher.until_waiting(0)
        for _ in range(2):
            with pytest.raises(OSError):
                launcher.form(2, 0, 1)
            assert not place.done() and not launcher.roster.is_starting
        launcher.form(2, 0, 1)
        told = place.result(_SECONDS)
    assert (told.generation, told.has_newcomers) == (2, False)


def test_a_worker_tells_that_its_state_is_on_disk(launcher: Launcher) -> None:
    launcher.worker(3).hold(is_durable=True)
    launcher.worker(4).hold()
    told: list[tuple[int, bool]] = []
    deadline = time.monotonic() + _SECONDS
    while len(told) < 2:
        assert time.monotonic() < deadline
        told += launcher.roster.take_holding()
    assert sorted(told) == [(3, True), (4, False)]
