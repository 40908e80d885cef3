"""Which addresses and ports a rank listens at."""

import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.mesh.linker import Linker
from horovod.bootstrap.mesh.places import Place, ways_to
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.network.auth import Role
from horovod.bootstrap.network.interfaces import Address, Network, chosen, from_environment
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import StoreServer

SECRET = bytes(range(32))
_IP_LOCAL_PORT_RANGE = 51  # see ip(7)
HERE = [
    Address("lo", "127.0.0.1"),
    Address("eth0", "10.0.0.1"),
    Address("eth1", "10.1.0.1"),
    Address("lo", "::1"),
    Address("eth0", "fd00::1"),
    Address("eth0", "fe80::1%eth0"),
    Address("eth1", "169.254.0.7"),
]
NAMES = ["lo", "eth0", "eth1", "eth2"]


def test_the_addresses_of_this_host_are_those_that_can_be_listened_at() -> None:
    found = interfaces.addresses()
    assert Address("lo", "127.0.0.1") in found
    names = [name for _, name in socket.if_nameindex()]
    for address in found:
        assert address.interface in names
        listener, where = endpoints.listen("tcp", address.host)
        with listener:
            host, port = endpoints.split(where) or ("", 0)
            assert host == address.host and port == listener.getsockname()[1]
            with endpoints.connect(where, within(2.0)) as connection:
                assert endpoints.own_host(connection) in {other.host for other in found}


def test_the_route_to_the_store_comes_first_then_others_then_links_and_loopback() -> None:
    hosts = chosen(Network(), HERE, NAMES, ["10.1.0.1"])
    assert hosts[:3] == ["10.1.0.1", "10.0.0.1", "fd00::1"]
    assert set(hosts[3:5]) == {"fe80::1%eth0", "169.254.0.7"}
    assert hosts[5:] == ["127.0.0.1", "::1"]


def test_loopback_is_last_also_where_it_leads_to_the_store() -> None:
    assert chosen(Network(), HERE, NAMES, ["127.0.0.1"])[-2:] == ["127.0.0.1", "::1"]


def test_no_address_is_left_out_for_bridges_and_links_of_containers() -> None:
    """Neither the one that leads to other hosts, nor loopback, by which those of this host come."""
    bridges = [Address(f"br{number}", f"172.{number}.0.1") for number in range(16, 48)]
    links = [Address(f"veth{number}", f"fe80::{number:x}%veth{number}") for number in range(1, 300)]
    hosts = chosen(Network(), [*links, *bridges, *HERE], NAMES, ["127.0.0.1"])
    assert {"10.0.0.1", "10.1.0.1", "127.0.0.1", "::1"} < set(hosts)
    assert hosts[-2:] == ["127.0.0.1", "::1"] and len(hosts) < 50
    routes = ["127.0.0.1", "10.1.0.1", "10.0.0.1"]
    assert chosen(Network(), [*bridges, *HERE], NAMES, routes)[:3] == ["10.1.0.1", "10.0.0.1", "172.16.0.1"]


def test_default_routes_are_own_addresses() -> None:
    own = {address.host for address in interfaces.addresses()}
    assert set(interfaces.default_routes()) <= own


def test_the_interfaces_of_the_user_in_their_order_and_no_others() -> None:
    network = from_environment({"HOROVOD_NETWORK_INTERFACES": "eth1, eth0"})
    assert chosen(network, HERE, NAMES, ["127.0.0.1"]) == [
        *("10.1.0.1", "10.0.0.1", "fd00::1"),
        *("169.254.0.7", "fe80::1%eth0"),
    ]


def test_the_name_of_horovod_gives_way_to_ours() -> None:
    assert from_environment({"HOROVOD_GLOO_IFACE": "eth1"}).interfaces == ("eth1",)
    both = {"HOROVOD_GLOO_IFACE": "eth1", "HOROVOD_NETWORK_INTERFACES": "eth0"}
    assert from_environment(both).interfaces == ("eth0",)
    assert from_environment({"HOROVOD_GLOO_IFACE": ""}).interfaces == ()


def test_an_unknown_interface_is_an_error_that_lists_those_that_exist() -> None:
    network = from_environment({"HOROVOD_GLOO_IFACE": "ib\x1b0"})
    with pytest.raises(ValueError, match=r"HOROVOD_GLOO_IFACE.*ib\\x1b0; this host has eth0, eth1, eth2, lo"):
        chosen(network, HERE, NAMES, ["127.0.0.1"])


def test_an_interface_without_an_address_is_an_error() -> None:
    network = from_environment({"HOROVOD_NETWORK_INTERFACES": "eth2"})
    with pytest.raises(ValueError, match="HOROVOD_NETWORK_INTERFACES=eth2: no address"):
        chosen(network, HERE, NAMES, ["127.0.0.1"])


@pytest.mark.parametrize("text", ["5000", "5000-", "2-1", "0-5", "1-65536", "a-b", "-1-5", "1-2,4-5"])
def test_what_is_no_range_of_ports(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_PORT_RANGE=.*expected FIRST-LAST, for example"):
        from_environment({"HOROVOD_PORT_RANGE": text})


@given(st.integers(1, 65535), st.integers(0, 65534))
def test_a_range_of_ports(first: int, more: int) -> None:
    last = min(65535, first + more)
    assert from_environment({"HOROVOD_PORT_RANGE": f"{first}-{last}"}).ports == range(first, last + 1)


def _free_range(count: int) -> range:
    """Ports in a row at which nobody listens, below those that the system gives."""
    for first in range(20000 + os.getpid() % 100 * 100, 32000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return range(first, first + count)
        except OSError:
            continue
    pytest.skip("no ports in a row are free on this machine")


def test_ports_come_from_the_range_until_it_is_exhausted() -> None:
    ports = _free_range(4)
    listeners = [endpoints.listen("tcp", ports=ports)[0] for _ in ports]
    try:
        assert {listener.getsockname()[1] for listener in listeners} == set(ports)
        with pytest.raises(BootstrapError, match=f"HOROVOD_PORT_RANGE={ports[0]}-{ports[-1]}: all of these"):
            endpoints.listen("tcp", ports=ports)
        with pytest.raises(OSError, match="all of these ports are taken"):  # as of one who can do without
            endpoints.free_port(ports)
        # Each address has ports of its own.
        other, _address = endpoints.listen("tcp", "127.0.0.2", ports=ports)
        other.close()
    finally:
        for listener in listeners:
            listener.close()


def test_a_port_is_given_to_one_program_also_before_it_listens() -> None:
    ports = _free_range(3)
    assert {endpoints.free_port(ports) for _ in ports} == set(ports)
    code = f"from horovod.bootstrap.network import endpoints; endpoints.free_port({ports})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=within(30))
    assert "belong to other jobs" in other.stderr
    # A process that starts job after job gives up what its first ones asked for.
    assert [endpoints.free_port(ports) in ports for _ in range(10)] == [True] * 10


def test_a_port_that_is_held_is_given_to_nobody_who_asks_for_any() -> None:
    """Programs that open many connections took it else before the one listened for which it is."""
    port = endpoints.free_port(holds=True)
    for host in {endpoints.LOOPBACK, *(each.host for each in interfaces.addresses())}:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as stranger:
            try:
                only = struct.pack("I", port << 16 | port)
                stranger.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, only)
            except OSError:
                pytest.skip("before Linux 6.3 a socket cannot say which ports it may be given")
            with pytest.raises(OSError, match="already in use"):
                stranger.bind(endpoints._target(host, 0))
        endpoints.listen("tcp", host, ports=range(port, port + 1))[0].close()


def test_links_keep_nobody_from_a_port_of_the_range() -> None:
    ports = _free_range(1)
    for _ in range(3):
        listener, address = endpoints.listen("tcp", ports=ports)
        ours = endpoints.connect(address, within(2.0))
        theirs = endpoints.accept(listener)
        listener.close()
        again, _address = endpoints.listen("tcp", ports=ports)  # the link is open still
        again.close()
        assert theirs is not None
        theirs.close()  # the side of the port closes first, and waits for a while
        ours.close()


def _place(machine: str, *addresses: str) -> Place:
    return Place("node", machine, 1, "", ("unix:@x", *addresses))


def test_loopback_leads_to_those_of_the_same_network_only() -> None:
    peer = _place("a", "tcp:10.0.0.1:1", "tcp:127.0.0.1:2", "tcp:[::1]:3")
    assert ways_to(peer, _place("a")) == ["tcp:127.0.0.1:2", "tcp:[::1]:3", "tcp:10.0.0.1:1"]
    assert ways_to(peer, _place("b")) == ["tcp:10.0.0.1:1"]


def test_an_address_that_both_hosts_have_is_no_way() -> None:
    peer = _place("a", "tcp:172.17.0.1:1", "tcp:10.0.0.1:1")
    assert ways_to(peer, _place("b", "tcp:172.17.0.1:9", "tcp:10.0.0.2:9")) == ["tcp:10.0.0.1:1"]


def test_a_link_local_address_is_tried_on_the_links_of_the_caller() -> None:
    peer = _place("a", "tcp:[fe80::1%eth1]:5")
    own = _place("b", "tcp:[fe80::2%eth0]:6", "tcp:[fe80::3%eth1]:6", "tcp:10.0.0.1:6")
    assert ways_to(peer, own) == ["tcp:[fe80::1%eth1]:5", "tcp:[fe80::1%eth0]:5"]
    assert ways_to(peer, _place("b", "tcp:10.0.0.1:6")) == []


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address whose connections are never completed, as where packets vanish: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.3", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            knocker = stack.enter_context(socket.socket())
            knocker.setblocking(False)
            knocker.connect_ex(("127.0.0.3", port))
        with pytest.raises(TimeoutError):
            endpoints.connect(f"tcp:127.0.0.3:{port}", 0.2)
        yield f"tcp:127.0.0.3:{port}"


def test_an_address_that_swallows_packets_costs_little(black_hole: str) -> None:
    listener, address = endpoints.listen("tcp")
    refused = "tcp:127.0.0.3:1"
    roles = (Role.WATCH, Role.CONTROL, Role.DATA)
    wanted, names = {(0, role) for role in roles}, ["rank 0 on a", "rank 1 on b"]
    acceptor = Linker(0, 1, SECRET, {(1, role) for role in roles}, [listener], names)
    began = time.monotonic()
    with acceptor, Linker(1, 1, SECRET, wanted, [], names) as linker:
        for _peer, role in sorted(wanted):
            linker.dial([black_hole, refused, address], 0, role)
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(each.run, time.monotonic(), 10.0) for each in (acceptor, linker)]
            for each in both:
                each.result()
        assert time.monotonic() - began < within(1.0)
        for link in (*acceptor.take_links(), *linker.take_links()):
            os.close(link[0])


def test_an_address_that_a_firewall_forbids_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux says EACCES where a router answers that traffic is prohibited, as firewalls do over IPv6."""
    finish, forbidden = endpoints.finish_connect, [True]

    def finish_connect(connection: socket.socket) -> None:
        if forbidden:
            forbidden.clear()
            raise OSError(errno.EACCES, "Permission denied")
        finish(connection)

    monkeypatch.setattr(endpoints, "finish_connect", finish_connect)
    listener, address = endpoints.listen("tcp")
    names = ["rank 0 on a", "rank 1 on b"]
    acceptor = Linker(0, 1, SECRET, {(1, Role.DATA)}, [listener], names)
    with acceptor, Linker(1, 1, SECRET, {(0, Role.DATA)}, [], names) as linker:
        linker.dial([address, address], 0, Role.DATA)
        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(end.run, time.monotonic(), 10.0) for end in (acceptor, linker)]:
                each.result()
        for link in (*acceptor.take_links(), *linker.take_links()):
            os.close(link[0])


def test_what_was_tried_is_told(black_hole: str) -> None:
    with Linker(1, 1, SECRET, {(0, Role.DATA)}, [], ["rank 0 on node7", "rank 1"]) as linker:
        linker.dial([black_hole, "tcp:127.0.0.3:1"], 0, Role.DATA)
        with pytest.raises(BootstrapError) as caught:
            linker.run(time.monotonic(), 1.0)
    text = str(caught.value)
    assert "no link to rank 0 on node7 within 1 s although it has arrived" in text
    assert f"{black_hole[4:]} (no answer)" in text and "127.0.0.3:1 (Connection refused)" in text
    assert "HOROVOD_NETWORK_INTERFACES" in text and "HOROVOD_PORT_RANGE" in text


def test_a_store_at_several_addresses_is_reached_at_the_first_that_answers(black_hole: str) -> None:
    server = StoreServer(SECRET, 2, "tcp", hosts=["127.0.0.1", "127.0.0.2"])
    server.start()
    first, second = server.address.split(",")
    began = time.monotonic()
    for address in (first, f"{black_hole},tcp:127.0.0.3:1,{second}"):
        with StoreClient(address, SECRET, 0, 1, 5.0) as client:
            client.set("a", b"b")
            assert client.own_host == "127.0.0.1"
    assert time.monotonic() - began < within(1.5)
    stranger = StoreServer(bytes(32), 2, "tcp")
    stranger.start()
    with StoreClient(f"{stranger.address},{second}", SECRET, 1, 1, 5.0) as client:
        assert client.get("a") == b"b"
    stranger.close()
    server.close()


def test_ports_that_were_given_leave_no_warning() -> None:
    """Neither those that are given up for others, nor the last ones."""
    code = "from horovod.bootstrap.network import endpoints\nfor _ in range(80): endpoints.free_port()"
    words = [sys.executable, "-W", "always::ResourceWarning", "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, timeout=within(30), check=True)
    assert result.stderr == ""
