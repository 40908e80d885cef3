"""Ranks of one host meet although somebody listens at the name that their job has there."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import within

from horovod.bootstrap.errors import AnotherUserError, BootstrapError
from horovod.bootstrap.identity import Identity
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.rendezvous import one_host, ways
from horovod.bootstrap.rendezvous.rendezvous import Rendezvous

RANKS = 3
SQUATTER = """
import os, socket, sys
os.setuid(12345)
sockets = [socket.socket(socket.AF_UNIX) for _ in sys.argv[2:]]
for each, name in zip(sockets, sys.argv[2:]):
    each.bind("\\0" + name)
    if int(sys.argv[1]) >= 0:
        each.listen(int(sys.argv[1]))
print("there", flush=True)
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"horovod-{os.urandom(16).hex()}"
    monkeypatch.setattr(one_host, "store_address", lambda *_: (f"unix:@{name}", bytes(32)))
    return name


def _squat(backlog: int, *names: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SQUATTER, str(backlog), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(params=[-1, 0, 100], ids=["holds", "lets wait", "listens"])
def squatter(request: pytest.FixtureRequest, name: str) -> Iterator[subprocess.Popen[str]]:
    """With a name that begins like those that rank 0 takes instead, too."""
    yield from _squat(request.param, name, f"{name}-{'0' * 16}")


def _find(rank: int, seconds: float = 20.0) -> tuple[Rendezvous, bytes]:
    identity = Identity(rank, RANKS, rank, RANKS, 0, 1, "host", "Open MPI")
    found = ways.find_rendezvous(identity, {}, interfaces.ANY_NETWORK, None, within(seconds))
    with found.client(1, within(seconds)) as store:
        return found, found.job_secret(store, within(seconds))


@needs_root
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["rank 0 first", "rank 0 last"])
def test_the_ranks_meet_at_another_name(
    squatter: subprocess.Popen[str], order: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        found = {}
        for rank in order:
            found[rank] = pool.submit(_find, rank)
            time.sleep(0.3)  # so that it has begun
        secrets = {future.result()[1] for future in found.values()}
    server = found[0].result()[0].server
    assert len(secrets) == 1 and server is not None
    server.close()
    assert "of user 12345 listens" in (said := capfd.readouterr().err) or "of another user listens" in said


@needs_root
def test_who_listens_is_told_where_rank_0_never_comes(name: str) -> None:
    for process in _squat(100, name):
        identity = Identity(1, RANKS, 1, RANKS, 0, 1, "host", "Open MPI")
        found = ways.find_rendezvous(identity, {}, interfaces.ANY_NETWORK, None, 1.0)
        with pytest.raises(AnotherUserError, match=f"process {process.pid} of user 12345, which is another"):
            found.client(1, 1.0)


def test_a_process_of_the_same_user_is_an_error_that_names_it(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind("\0" + name)
        holder.listen(10)
        assert endpoints.listener(f"unix:@{name}") == (os.getpid(), os.geteuid())
        with pytest.raises(BootstrapError, match=f"Address already in use, by your process {os.getpid()}"):
            _find(0)
