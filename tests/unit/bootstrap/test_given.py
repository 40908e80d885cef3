"""A job that the program gives: who is in one already, and who is not."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from horovod.bootstrap.errors import StartTimeoutError
from horovod.bootstrap.given import GivenJob, Place, one_job


class MemoryStore:
    """A GivenStore of one process."""

    name = "the memory"

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, timeout)
            return self._values.get(key)


def meet(places: list[Place | None], timeout: float = 10.0) -> list[object]:
    """What each rank gets or raises; None starts a job."""
    store = MemoryStore()

    def one(rank: int) -> object:
        job, place = GivenJob(rank, len(places), store, "key"), places[rank]
        try:
            return job.identity({}, timeout) if place is None else job.places(place, timeout)
        except (ValueError, StartTimeoutError) as error:
            return error

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(one, range(len(places))))


def test_a_place_is_told_apart_from_a_host():
    place = Place(3, 4, "job")
    assert Place.read(place.told()) == place
    assert Place.read("node-3.example") is None


def test_all_in_one_job_learn_their_ranks():
    assert meet([Place(rank, 5, "job") for rank in (4, 0, 2)]) == [[4, 0, 2]] * 3


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([Place(0, 1, "a"), Place(0, 1, "b")], "different jobs: 0 is rank 0 of 1, 1 is rank 0 of 1"),
        ([Place(0, 1, "a"), None, Place(0, 1, "b")], r"The ranks \[0, 2\] .* and \[1\] are not"),
        ([None, Place(0, 1, "a"), Place(0, 1, "b")], r"The ranks \[1, 2\] .* and \[0\] are not"),
    ],
)
def test_all_hear_why_they_cannot_be_one_job(places, said):
    with pytest.raises(ValueError, match=said):
        one_job(places)
    told = meet(places)
    assert all(isinstance(error, ValueError) for error in told)
    assert len({str(error) for error in told}) == 1


def test_a_rank_that_does_not_come_is_named():
    job = GivenJob(0, 3, MemoryStore(), "key")
    with pytest.raises(StartTimeoutError, match=r"the ranks \[1, 2\] of 3 have not come") as caught:
        job.places(Place(0, 3, "job"), 0.05)
    assert caught.value.absent == (1, 2)
