"""A rank runs one program after another: none takes what an earlier one has set in the store for its own."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.errors import StartTimeoutError
from horovod.bootstrap.network.auth import LAUNCHER_RANK, Role, Terms
from horovod.bootstrap.store import client as store_client
from horovod.bootstrap.store.arrivals import Arrivals
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.messages import Tag
from horovod.bootstrap.store.rounds import Rounds, moved
from horovod.bootstrap.store.server import StoreServer

_SECRET = bytes(range(32))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.permutations(range(3)))
def test_ranks_of_one_program_mean_the_same_start_whoever_is_first(
    starts: list[int], order: list[int]
) -> None:
    """Each program starts so many times. A rank goes on as soon as all have come to its last start."""
    rounds, arrivals = Rounds(), Arrivals(3, 10.0)
    seen: dict[tuple[int, int], set[int]] = {}
    for program, count in enumerate(starts):
        for generation in range(1, count + 1):
            for rank in order:
                terms = Terms(Role.LAUNCHER, rank, LAUNCHER_RANK, generation)
                number = generation + rounds.offset(terms, b"%d %d" % (program, rank), arrivals)
                arrivals.note(rank, b"%d/mesh/%d" % (number, rank), 0.0)
                seen.setdefault((program, generation), set()).add(number)
    numbers = [number for found in seen.values() for number in found]
    assert numbers == list(range(1, sum(starts) + 1))


def test_a_process_that_did_not_come_is_no_program_of_its_own() -> None:
    """Its rank begins again, and joins the start that the others have come to."""
    rounds, arrivals = Rounds(), Arrivals(2, 10.0)
    for token, number in ((b"first", 1), (b"again", 1)):
        terms = Terms(Role.LAUNCHER, 0, LAUNCHER_RANK, 1)
        assert 1 + rounds.offset(terms, token, arrivals) == number
    arrivals.note(1, b"1/mesh/1", 0.0)
    arrivals.note(1, b"2/mesh/1", 0.0)
    assert rounds.offset(Terms(Role.LAUNCHER, 0, LAUNCHER_RANK, 1), b"third", arrivals) == 1


def test_only_keys_of_starts_are_moved() -> None:
    assert moved(Tag.SET, [b"1/mesh/0", b"1/value"], 2) == [b"3/mesh/0", b"1/value"]
    assert moved(Tag.ADD, [b"other", b"1"], 2) == [b"other", b"1"]
    assert moved(Tag.WAIT, [b"1000", b"1/mesh/0", b"job/secret"], 2) == [b"1000", b"3/mesh/0", b"job/secret"]
    assert moved(Tag.CLAIM, [b"1/x", b""], 2) == [b"1/x", b""]


@pytest.fixture(params=[False, True], ids=["of the launcher", "of rank 0"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    server = StoreServer(_SECRET, 2, of_one_program=request.param)
    server.start()
    yield server
    server.close()


def test_the_next_program_of_a_rank(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        with StoreClient(server.address, _SECRET, rank, 1, 5.0) as before:
            before.set(f"1/mesh/{rank}", b"before")
    monkeypatch.setattr(store_client, "_token", lambda: b"another process!")
    if server._of_one_program:  # rank 0 has not got to its next program, which makes a store of its own
        with pytest.raises(StartTimeoutError, match="rank 0 is still in the program that rank 1 has left"):
            StoreClient(server.address, _SECRET, 1, 1, 5.0)
        return
    with StoreClient(server.address, _SECRET, 1, 1, 5.0) as next_one:
        next_one.set("1/mesh/1", b"now")
        with pytest.raises(StartTimeoutError):
            next_one.get("1/mesh/0", 0.05)
        with StoreClient(server.address, _SECRET, 0, 1, 5.0) as other:
            other.set("1/mesh/0", b"now")
            assert next_one.wait(["1/mesh/0", "1/mesh/1"]) == [b"now", b"now"]
