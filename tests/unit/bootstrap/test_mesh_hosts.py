"""Links among the ranks of several hosts, which are threads of one process here."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod import _core
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.identity import Identity
from horovod.bootstrap.mesh.mesh import Entry, Mesh, connect_mesh
from horovod.bootstrap.mesh.neighbours import at_start
from horovod.bootstrap.mesh.places import Place, check_alike, decode, number_hosts
from horovod.bootstrap.network.auth import Role
from horovod.bootstrap.start_settings import staging
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

_SECRET = bytes(range(32))


@pytest.fixture
def server() -> Iterator[StoreServer]:
    before = len(os.listdir("/proc/self/fd"))
    server = StoreServer(_SECRET, 16, "tcp", hosts=["127.0.0.2"])
    server.start()
    yield server
    server.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def _join(server: StoreServer, rank: int, hosts: Sequence[int], wiring: str, local_size: int | None) -> Mesh:
    local = [peer for peer in range(len(hosts)) if hosts[peer] == hosts[rank]]
    size = len(local) if local_size is None else local_size
    identity = Identity(rank, len(hosts), local.index(rank), size, 0, 1, f"node{hosts[rank]}")
    with StoreClient(server.address, _SECRET, rank, 1, 10.0) as store:
        return connect_mesh(Entry(identity, 1, store, _SECRET, 10.0), wiring, time.monotonic() + 10)


def _join_all(
    server: StoreServer, hosts: Sequence[int], wiring: str = "auto", local_size: int | None = None
) -> list[Mesh]:
    with ThreadPoolExecutor(len(hosts)) as pool:
        ranks = [pool.submit(_join, server, rank, hosts, wiring, local_size) for rank in range(len(hosts))]
        return [rank.result() for rank in ranks]


def _view(descriptor: int) -> socket.socket:
    return socket.socket(fileno=os.dup(descriptor))


@pytest.mark.parametrize("wiring", ["auto", "tcp"])
@pytest.mark.parametrize("hosts", [[0, 1], [0, 0, 1, 1], [0, 0, 1, 2, 2, 2], [0, 1, 0, 2, 1, 0, 2, 0]])
def test_links_between_hosts_are_tcp_and_within_them_unix(
    server: StoreServer, hosts: list[int], wiring: str
) -> None:
    meshes = _join_all(server, hosts, wiring)
    for rank, mesh in enumerate(meshes):
        assert mesh.hosts == hosts and mesh.wiring == ("shm" if wiring == "auto" else "tcp")
        assert {(link[1], Role(link[2])) for link in mesh.links} == at_start(rank, hosts, wiring == "auto")
        for descriptor, peer, _role, _send, _receive in mesh.links:
            with _view(descriptor) as view:
                is_near = wiring == "auto" and hosts[peer] == hosts[rank]
                assert view.family == (socket.AF_UNIX if is_near else socket.AF_INET)
                # The address by which the store is reached, and no other one of this machine.
                assert is_near or {view.getsockname()[0], view.getpeername()[0]} == {"127.0.0.1"}
            os.close(descriptor)
        assert mesh.on_demand is not None
        mesh.on_demand.close()


def test_ranks_of_one_name_on_two_machines_are_told_so_everywhere(server: StoreServer) -> None:
    with ThreadPoolExecutor(3) as pool:
        ranks = [pool.submit(_join, server, rank, [0, 0, 1], "auto", 1) for rank in range(3)]
        texts = set()
        for rank in ranks:
            with pytest.raises(BootstrapError) as error:
                rank.result()
            texts.add(str(error.value))
    (text,) = texts
    assert "rank 0: its launcher says that its host has 1 of the ranks, but it has 2: it is node0" in text
    assert threading.active_count() < 50


def _place(host: str, machine: str, local_size: int) -> Place:
    return Place(host, machine, local_size, "", ("unix:@x", "tcp:10.0.0.1:4000"))


def test_ranks_of_two_versions_are_named() -> None:
    places = [_place("a", "m", 1), _place("b", "n", 1)._replace(version="9.9")]
    with pytest.raises(BootstrapError, match=r"rank 1 on b has version 9.9 of horovod, and rank 0 on a has"):
        check_alike(places)


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1], [0, 0, 1]])
def test_a_transport_that_one_rank_alone_has_is_the_same_error_everywhere(
    server: StoreServer, hosts: list[int]
) -> None:
    """Hosts that are wired differently would cut tensors differently: sums would be wrong, without a word."""
    count = len(hosts)
    wirings = ["auto"] * (count - 1) + ["tcp"]
    texts = set()
    with ThreadPoolExecutor(count) as pool:
        ranks = [pool.submit(_join, server, rank, hosts, wirings[rank], None) for rank in range(count)]
        for rank in ranks:
            with pytest.raises(BootstrapError) as error:
                rank.result()
            texts.add(str(error.value))
    (text,) = texts
    assert (
        f"HOROVOD_TRANSPORT is tcp on rank {count - 1} on node" in text and "not on rank 0 on node0" in text
    )


def test_ranks_that_stage_tensors_differently_hear_how() -> None:
    usual = staging({})
    other = staging({"HOROVOD_SHM_CHUNK_BYTES": "65536"})
    assert usual == staging({"HOROVOD_SHM_STAGING_SLOTS": "4"}) != other
    defaults = {row[0]: row[2] for row in _core.settings() if row[0].startswith("HOROVOD_SHM_")}
    defaults |= {"HOROVOD_DATA_LINKS": "1", "HOROVOD_ENCRYPT": "0"}
    assert usual == ", ".join(f"{variable}={value}" for variable, value in defaults.items())
    places = [_place("a", "m", 1)._replace(staging=usual), _place("b", "n", 1)._replace(staging=other)]
    assert decode(1, places[1].encode()) == places[1]
    with pytest.raises(BootstrapError, match=r"rank 1 on b has HOROVOD_SHM_CHUNK_BYTES=65536, .*=131072"):
        check_alike(places)


@pytest.mark.parametrize("value", ["1", "2", "true", "Yes", "on"])
def test_ranks_encrypt_by_any_word_of_a_flag(value: str) -> None:
    assert staging({"HOROVOD_ENCRYPT": value}).endswith(", HOROVOD_ENCRYPT=1")
    assert staging({"HOROVOD_ENCRYPT": "off"}) == staging({})


def test_ranks_spread_data_over_as_many_links() -> None:
    assert staging({"HOROVOD_DATA_LINKS": "4"}) != staging({"HOROVOD_DATA_LINKS": "1"}) == staging({})
    with pytest.raises(ValueError, match=r"HOROVOD_DATA_LINKS=5: expected an integer from 1 to 4"):
        staging({"HOROVOD_DATA_LINKS": "5"})


@pytest.mark.parametrize("value", ["0", "16383", "2000000", "64k"])
def test_a_chunk_of_no_use_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_SHM_CHUNK_BYTES=.*from 16384 to 1048576"):
        staging({"HOROVOD_SHM_CHUNK_BYTES": value})


def test_one_name_for_two_machines_is_named() -> None:
    places = [_place("node", "a", 2), _place("node", "b", 2), _place("other", "c", 1)]
    with pytest.raises(BootstrapError, match=r"2 ranks name it node.*HOROVOD_HOSTNAME of its own"):
        number_hosts(places)


@pytest.mark.parametrize("sizes", [[2, 2], [4, 4, 2, 2]])
def test_ranks_that_all_say_one_host_and_see_two_are_named(sizes: list[int]) -> None:
    half = len(sizes) // 2
    places = [_place("localhost", "a" if rank < half else "b", size) for rank, size in enumerate(sizes)]
    with pytest.raises(BootstrapError, match=rf"rank 0: .* has {sizes[0]} of the ranks, but it has {half}"):
        number_hosts(places)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_hosts_are_numbered_by_their_first_ranks(names: list[int]) -> None:
    hosts = number_hosts([_place(f"node{name}", "m", names.count(name)) for name in names])
    if len(set(names)) == 1:
        assert hosts == []
        return
    assert [names.index(name) for name in names] == [hosts.index(number) for number in hosts]
    firsts = [hosts.index(number) for number in range(max(hosts) + 1)]
    assert firsts == sorted(firsts)


_lines = st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters=",")).map(
    lambda text: " ".join(text.split())
)


@given(_lines, _lines, st.integers(0, 10**8), _lines, st.lists(_lines, min_size=1, max_size=4), _lines)
def test_a_place_is_told_as_it_is(
    host: str, machine: str, size: int, refusal: str, addresses: list[str], version: str
) -> None:
    place = Place(host, machine, size, refusal, tuple(addresses), "tcp", version)
    assert decode(0, place.encode()) == place


@pytest.mark.parametrize(
    "value", [b"", b"a\nb\nc\nd\ne", b"a\nb\n1\nd", b"\xff" * 40, b"a\nb\n" + b"9" * 30 + b"\n\n"]
)
def test_what_is_no_place_is_refused(value: bytes) -> None:
    with pytest.raises(BootstrapError, match="rank 3"):
        decode(3, value)
