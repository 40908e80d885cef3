"""Hosts as users write them, and where ranks are placed on them."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner import launchers
from horovod.runner.hosts import Host, HostsError, Placement, allocate, narrow, parse, read_hostfile, select
from horovod.runner.launch import parse_args

NAMES = st.from_regex(r"\A[a-z0-9_][a-z0-9._-]{0,8}[a-z0-9]\Z")
ADDRESSES = st.ip_addresses(v=6).map(str)
HOSTS = st.lists(
    st.builds(Host, NAMES | ADDRESSES, st.integers(1, 9)), min_size=1, max_size=8, unique_by=lambda h: h.name
)


@given(HOSTS)
def test_what_is_written_is_read(hosts: list[Host]) -> None:
    assert parse(",".join(map(str, hosts))) == hosts


def test_hosts_of_every_kind() -> None:
    assert parse("a:2, b.example:1,[fe80::1%eth0]:4,10.0.0.3:1") == [
        Host("a", 2),
        Host("b.example", 1),
        Host("fe80::1%eth0", 4),
        Host("10.0.0.3", 1),
    ]
    assert str(Host("fe80::1", 4)) == "[fe80::1]:4"


def test_names_that_differ_in_case_only_are_one_host() -> None:
    assert parse("Node1:2,b:1,NODE1:1,node1:1") == [Host("Node1", 4), Host("b", 1)]


def test_a_host_that_is_named_twice_has_the_slots_of_both() -> None:
    assert parse("a:2,b:1,a:3,c:0") == [Host("a", 5), Host("b", 1)]


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:", ":2", "a:x", "a:-1", "a:1e3", "a:2,", "a:99999999", "a:1000001", "a:0", "::1:2"),
        *("[::1]", "[fe80:2", "[::g]:1", "[::1%]:1", "[::1%a b]:1", "-oProxyCommand=x:1", "a b:1", "a;b:1"),
        *("a\n:1", "x" * 254 + ":1", "a-:1", "é:1", "a:²", "user@a:1"),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(HostsError) as raised:
        parse(text)
    assert "-H" in str(raised.value) and "\n" not in str(raised.value)


def test_the_user_of_a_host_stands_in_the_configuration_of_ssh(tmp_path: Path) -> None:
    remedy = r"^.*'ada@node2'.*User ada.*Host node2.*~/\.ssh/config"
    with pytest.raises(HostsError, match=remedy):
        parse("node1:2,ada@node2:2")
    (tmp_path / "hosts").write_text("ada@node2 slots=2\n")
    with pytest.raises(HostsError, match=remedy):
        read_hostfile(str(tmp_path / "hosts"))


def test_files_in_the_manner_of_everybody(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\n\na slots=2 # two\nb slots = 3 max-slots = 4\n  c\nd:5\nfe80::1 slots=1\n[fe80::2]:2\n"
        "c\ne max_slots=9\nf slots=0\n"
    )
    assert read_hostfile(str(file)) == [
        Host("a", 2),
        Host("b", 3),
        Host("c", 2),
        Host("d", 5),
        Host("fe80::1", 1),
        Host("fe80::2", 2),
        Host("e", 1),
    ]


def test_a_hostfile_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As some editors write it."""
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfa slots=2\r\nb\r\n")
    assert read_hostfile(str(tmp_path / "hosts")) == [Host("a", 2), Host("b", 1)]


@pytest.mark.parametrize(
    "line",
    [
        *("a slots=x", "a slots=", "a slots", "a b", "a slots=1 slots=2", "a:1 slots=2", "a:", "-a slots=1"),
        *("[::g] slots=1", "a max-slots=x", "a slots==2", "a,b slots=1"),
    ],
)
def test_a_line_that_is_no_host_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(HostsError, match=rf"^{file}:2: "):
        read_hostfile(str(file))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(HostsError, match=r"absent: No such file"):
        read_hostfile(str(tmp_path / "absent"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(HostsError, match="UTF-8"):
        read_hostfile(str(tmp_path / "bytes"))
    (tmp_path / "empty").write_text("# nobody\n")
    with pytest.raises(HostsError, match="has no slots"):
        read_hostfile(str(tmp_path / "empty"))


@given(st.text(max_size=30))
def test_no_text_makes_anything_but_hosts_or_their_refusal(text: str) -> None:
    try:
        hosts = parse(text)
    except HostsError:
        return
    assert hosts and parse(",".join(map(str, hosts))) == hosts


@given(HOSTS, st.data())
def test_placements_are_dense_and_agree(hosts: list[Host], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, sum(host.slots for host in hosts)))
    placements = allocate(hosts, size)
    assert [placement.rank for placement in placements] == list(range(size))
    used = Counter(placement.host for placement in placements)
    order = [host.name for host in hosts]
    assert list(used) == order[: len(used)]
    for host in hosts[: len(used) - 1]:
        assert used[host.name] == host.slots  # filled before the next one is used
    assert all(used[host.name] <= host.slots for host in hosts)
    for name, count in used.items():
        own = [placement for placement in placements if placement.host == name]
        assert [placement.local_rank for placement in own] == list(range(count))
        assert {placement.local_size for placement in own} == {count}
    for local in range(max(used.values())):
        across = [placement for placement in placements if placement.local_rank == local]
        assert [placement.cross_rank for placement in across] == list(range(len(across)))
        assert {placement.cross_size for placement in across} == {len(across)}


def test_hosts_of_unequal_size() -> None:
    assert allocate([Host("a", 1), Host("b", 2)], 3) == [
        Placement(0, "a", 0, 1, 0, 2),
        Placement(1, "b", 0, 2, 1, 2),
        Placement(2, "b", 1, 2, 0, 1),
    ]


def test_more_ranks_than_slots_are_refused() -> None:
    with pytest.raises(HostsError, match=r"^-np 4 is more than the 3 slots of a:1,b:2: "):
        allocate([Host("a", 1), Host("b", 2)], 4)


THREE = [Host("a", 4), Host("b", 4), Host("c", 2)]


@pytest.mark.parametrize(
    ("np", "nnodes", "per_node", "slots", "ranks"),
    [
        (3, None, None, [4, 4, 2], 3),
        (None, None, None, [4, 4, 2], 10),
        (None, 2, None, [4, 4], 8),
        (6, 3, None, [2, 2, 2], 6),
        (None, None, 2, [2, 2, 2], 6),
        (None, 2, 3, [3, 3], 6),
        (6, 2, 3, [3, 3], 6),
        (3, None, 2, [2, 2, 2], 3),
    ],
)
def test_numbers_of_hosts_and_of_ranks_on_each(np, nnodes, per_node, slots, ranks) -> None:
    hosts, count = narrow(THREE, np, nnodes, per_node)
    assert ([host.slots for host in hosts], count) == (slots, ranks)
    assert len(allocate(hosts, count)) == ranks


@pytest.mark.parametrize(
    ("np", "nnodes", "per_node", "said"),
    [
        (None, 4, None, "--nnodes 4: there are only 3 hosts"),
        (None, 0, None, "--nnodes 0"),
        (5, 2, None, "evenly"),
        (9, 3, None, "c has 2 slots"),
        (None, None, 3, "c has 2 slots"),
        (None, None, 0, "at least 1 rank"),
        (5, 2, 2, "is 4 ranks, and -np is 5"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(np, nnodes, per_node, said) -> None:
    with pytest.raises(HostsError, match=said):
        narrow(THREE, np, nnodes, per_node)


def test_this_host_goes_by_several_names() -> None:
    assert all(map(launchers.is_this_host, ("localhost", "127.0.0.1", "::1")))


def test_some_of_the_hosts() -> None:
    hosts = parse("a:2,B:1,c:3")
    assert select(hosts, None, []) == hosts
    assert select(hosts, ["C", "a"], ["x"]) == parse("a:2,c:3")
    assert select(hosts, None, ["b", "a"]) == parse("c:3")
    with pytest.raises(HostsError, match="--include d: no host of this job is called so; it has a,B,c"):
        select(hosts, ["a", "d"], [])
    with pytest.raises(HostsError, match="--exclude a: no host is left of a,B,c"):
        select(hosts, ["a"], ["a"])


@pytest.mark.parametrize("policy", [[], ["--min-np", "2"]], ids=["static", "elastic"])
def test_options_choose_hosts(policy: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hosts"
    file.write_text("localhost slots=2\nn1 slots=1\nn2 slots=1\n[fd00::1] slots=2\n")
    hosts = [*policy, "-np", "auto", "--hostfile", str(file)]

    def chosen(*options: str) -> list[str]:
        return list(map(str, parse_args([*hosts, *options, "prog"]).host_list))

    assert chosen("--include", "n[1-2]") == ["n1:1", "n2:1"]
    assert chosen("--exclude=n1,n7,[fd00::1]") == ["localhost:2", "n2:1"]
    assert chosen("--exclude", "127.0.0.1", "--include", "localhost,fd00::1") == ["[fd00::1]:2"]
    for options, said in (
        (["--include", "n[1"], "'n[1' is no list of hosts, such as node1,node[3-5]"),
        (["--include", "n3"], "--include n3: no host of this job is called so"),
    ):
        with pytest.raises(SystemExit):
            chosen(*options)
        assert said in capsys.readouterr().err
    places = [["-np", "2"], ["-np", "2", "--rendezvous", ":29500", "--wait-for-hosts", "1"]]
    places += [["-np", "2", "--host-discovery-script", "script"]] if policy else []
    for place in places:
        with pytest.raises(SystemExit):
            parse_args([*policy, *place, "--exclude", "n1", "prog"])
        assert "--exclude: it chooses among hosts of -H" in capsys.readouterr().err
