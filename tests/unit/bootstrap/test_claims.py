"""Which process may act as a rank."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.store.claims import Claims
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

_SECRET = bytes(range(32))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans())))
def test_a_rank_has_one_process_for_as_long_as_it_has_links(events: list[tuple[int, int, bool]]) -> None:
    claims, links = Claims(), dict.fromkeys([(rank, who) for rank in range(3) for who in range(3)], 0)
    for rank, who, comes in events:
        if comes:
            others = sum(links[rank, other] for other in range(3) if other != who)
            refusal = claims.take(rank, b"%d" % who, f"process {who}")
            assert bool(refusal) == (others > 0)
            links[rank, who] += not refusal
        elif links[rank, who]:
            claims.release(rank)
            links[rank, who] -= 1


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_rank_claimed_twice_says_so(kind: str) -> None:
    said: list[str] = []
    server = StoreServer(_SECRET, 2, kind, say=said.append)
    server.start()
    first = StoreClient(server.address, _SECRET, 1, 1, 5.0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with pytest.raises(BootstrapError, match=r"rank 1 is claimed twice: process \d+ on .* has"):
                StoreClient(server.address, _SECRET, 1, 1, 5.0)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    again = StoreClient(server.address, _SECRET, 1, 1, 5.0)
    with first, again:  # the first is not disturbed, and may start once more
        first.set("1/x", b"")
        again.set("1/x", b"")
    own, other = (f"process {process} on {socket.gethostname()}" for process in (os.getpid(), pid))
    assert said and f"{own} has started as rank 1, and {other} does so too" in said[0]
    server.close()
