"""A loader with a state of its own between real ranks: who goes on where."""

import pytest


class Parts:
    """Gives a rank's part of 24 numbers, in order."""

    def __init__(self, rank, ranks):
        self.part, self.given = list(range(rank, 24, ranks)), 0

    def __iter__(self):
        while self.given < len(self.part):
            self.given += 1
            yield self.part[self.given - 1]
        self.given = 0

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state_dict):
        self.given = state_dict["given"]


def rank_syncs(places, given, commits):
    import horovod.torch as hvd

    hvd.init()
    rank = hvd.rank()
    loader = Parts(rank, hvd.size())
    state = hvd.elastic.TorchState(loader=loader)
    for _ in loader:
        if loader.given == given[rank]:
            break
    state.save()
    state._handlers["loader"]._place = tuple(places[rank])
    state._age = (0, commits[rank])
    state.sync()
    first = next(iter(loader))
    state.restore()
    return [first, next(iter(loader))]


@pytest.mark.parametrize(
    ("places", "given", "commits", "expected"),
    [
        ([[0, 3], [1, 3], [2, 3]], [2, 2, 2], [1, 1, 1], [6, 7, 8]),  # nobody is new
        ([[0, 3], [1, 3], [2, 3]], [2, 3, 4], [1, 1, 1], [6, 10, 14]),  # each has a place of its own
        ([[0, 3], [0, 1], [2, 3]], [2, 1, 2], [1, 0, 1], [6, 7, 8]),  # rank 1 is new
        ([[2, 3], [1, 3], [0, 1]], [2, 2, 1], [1, 1, 0], [6, 7, 8]),  # rank 0 was another
        ([[0, 3], [1, 3], [2, 3]], [2, 3, 2], [1, 2, 1], [9, 10, 11]),  # rank 1 has committed once more
        ([[0, 2], [1, 2], [0, 1]], [2, 2, 1], [1, 1, 0], [0, 1, 2]),  # they were two
        ([[0, 4], [1, 4], [3, 4]], [2, 2, 2], [1, 1, 1], [0, 1, 2]),  # they were four
    ],
)
def test_who_goes_on_where(run_ranks, places, given, commits, expected):
    results = run_ranks(3, rank_syncs, [places, given, commits])
    assert results == [[number, number] for number in expected]
