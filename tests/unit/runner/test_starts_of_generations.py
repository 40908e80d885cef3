"""The launcher's side of the membership: what those hear who are in a start when one of them ends."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import within

from horovod.bootstrap import secret
from horovod.bootstrap.errors import AbandonedError
from horovod.bootstrap.membership import decode_place
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer
from horovod.elastic.driver.numbering import Candidate, number
from horovod.runner.elastic.roster import Roster

_ROOT = bytes(range(32))


@pytest.fixture
def roster() -> Iterator[Roster]:
    roster = Roster(_ROOT, StoreServer, lambda: None, 20.0)
    yield roster
    roster.close()


def _place(roster: Roster, worker: int) -> StoreClient:
    """Asks for a place, waits for it, and comes to the store of the generation."""
    with StoreClient(roster.address, _ROOT, worker, 0, 5.0) as client:
        client.set(f"waiting/{worker}", b"1 0")
        place = decode_place(client.get(f"place/{worker}/1.", 5.0))
    own = secret.of_generation(_ROOT, place.generation)
    return StoreClient(place.store, own, place.rank, place.generation, 5.0)


def _gather(roster: Roster, count: int) -> list[StoreClient]:
    with ThreadPoolExecutor(count) as pool:
        clients = [pool.submit(_place, roster, worker) for worker in range(count)]
        waiting: list[int] = []
        for _ in itertools.count():
            waiting += [worker for worker, _ in roster.take_waiting()]
            if len(waiting) == count:
                break
            threading.Event().wait(0.005)
        roster.form(1, number([Candidate(worker, "here", None, None) for worker in range(count)]))
        return [client.result() for client in clients]


def test_those_who_are_in_a_start_meet_again_when_one_of_them_ends(roster: Roster) -> None:
    clients = _gather(roster, 3)
    assert roster.is_starting
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(client.get, "1/mesh/1", 20.0) for client in (clients[0], clients[2])]
        roster.ended([1])
        for wait in waits:
            assert isinstance(wait.exception(within(5.0)), AbandonedError)
    for client in clients:
        client.close()


def test_the_end_of_a_worker_of_an_earlier_generation_is_no_news(roster: Roster) -> None:
    clients = _gather(roster, 2)
    roster.ended([7])
    for rank, client in enumerate(clients):
        client.set(f"1/mesh/{rank}", b"x")
    assert clients[0].get("1/mesh/1") == b"x"
    for rank, client in enumerate(clients):
        client.set(f"1/linked/{rank}", b"")
        client.close()
    assert not roster.is_starting


def test_ranks_hear_that_one_of_them_is_out_of_reach(roster: Roster) -> None:
    clients = _gather(roster, 2)
    roster.lost([7])
    roster.lost([1])
    with StoreClient(roster.address, _ROOT, 0, 0, 5.0) as client:
        assert client.get("update/1.", 5.0) == b"removed"
    for client in clients:
        client.close()
