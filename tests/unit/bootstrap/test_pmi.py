"""The client of MPICH's process management interface, against a server of the tests' own."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.errors import BootstrapError, StartTimeoutError
from horovod.bootstrap.rendezvous import pmi


class Server:
    """Answers ranks over socket pairs, as mpirun does: what is put can be had after the next barrier."""

    def __init__(self, ranks: int) -> None:
        self.ends = [socket.socketpair() for _ in range(ranks)]
        self.requests: list[list[str]] = [[] for _ in range(ranks)]
        self._barrier = threading.Barrier(ranks, self._publish)
        self._new: dict[str, str] = {}
        self._seen: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._serve, args=(rank,)) for rank in range(ranks)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._barrier.abort()
        for near, far in self.ends:
            near.close()
            far.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for _near, far in self.ends:
            far.close()

    def _publish(self) -> None:
        self._seen.update(self._new)

    def _serve(self, rank: int) -> None:
        with contextlib.suppress(ConnectionError), self.ends[rank][1].makefile("rw") as lines:
            for line in lines:
                words = dict(word.split("=", 1) for word in line.split())
                self.requests[rank].append(words["cmd"])
                answer = self._answer(words)
                # In pieces, as a stream may deliver it.
                for piece in (answer[:5], answer[5:] + "\n"):
                    lines.write(piece)
                    lines.flush()

    def _answer(self, words: dict[str, str]) -> str:
        match words["cmd"]:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_my_kvsname":
                return "cmd=my_kvsname kvsname=kvs_7"
            case "put":
                self._new[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get" if words["key"] in self._seen:
                return f"cmd=get_result rc=0 msg=success value={self._seen[words['key']]}"
            case "get":
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            case "barrier_in":
                try:
                    self._barrier.wait(within(10))
                except threading.BrokenBarrierError:
                    return "cmd=barrier_out rc=-1"
                return "cmd=barrier_out"
        return f"cmd={words['cmd']}_ack"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(3)
    yield server
    server.close()


def _opened(server: Server, rank: int) -> pmi.KeyValueSpace:
    space = pmi.opened({"PMI_FD": str(server.ends[rank][0].fileno())}, rank, within(10))
    assert space is not None
    return space


def _exchange(server: Server, rank: int, value: str) -> str:
    space = _opened(server, rank)
    if rank == 0:
        space.tell(value)
        return value
    assert space.hear(within(10)) == space.hear(0.0)
    return space.hear(0.0)


def test_what_rank_0_tells_the_others_hear_also_in_a_second_program(server: Server) -> None:
    with ThreadPoolExecutor(3) as pool:
        for value in ("tcp:10.0.0.1:4000;0a=b", "another"):
            heard = list(pool.map(lambda rank, value=value: _exchange(server, rank, value), range(3)))
            assert heard == [value] * 3


def test_a_process_without_mpi_says_goodbye(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    space = _opened(server, 1)
    monkeypatch.setattr(pmi, "_mpi_has_begun", lambda: True)
    space._say_goodbye()
    assert server.requests[1][-1] == "get_my_kvsname"
    monkeypatch.setattr(pmi, "_mpi_has_begun", lambda: False)
    space._say_goodbye()
    assert server.requests[1][-1] == "finalize"


def test_who_waits_for_ranks_in_vain_is_told(server: Server) -> None:
    space = _opened(server, 1)
    with pytest.raises(StartTimeoutError, match=r"rank 1 waited in vain for all ranks.*hvd.init"):
        space.hear(0.2)


def test_without_a_way_to_it_there_is_none() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with open(os.devnull) as file, ours:
        for text in ("", "x", "-1", "99999", str(file.fileno()), str(ours.fileno())):
            assert pmi.opened({"PMI_FD": text}, 0, 1.0) is None
    assert pmi.opened({}, 0, 1.0) is None


def test_a_refusal_is_an_error_with_the_answer(server: Server) -> None:
    space = _opened(server, 2)
    with pytest.raises(
        BootstrapError, match=r"rank 2: the key-value space .* answers cmd=nonsense_ack to nonsense"
    ):
        space._ask("nonsense", "sense")


@given(st.text())
def test_any_line_is_read(line: str) -> None:
    assert all(isinstance(value, str) for value in pmi.parse(line).values())
