"""The ways to other hosts, without one: frames, ssh's command and its failures, addresses."""

import json
import os
import selectors
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.network import interfaces
from horovod.bootstrap.network.interfaces import ANY_NETWORK
from horovod.runner import launchers
from horovod.runner.arbitration import arbitrate
from horovod.runner.ending import Exit
from horovod.runner.hosts import Host, parse
from horovod.runner.launchers import united
from horovod.runner.nodes import channel, machine, reach, replies
from horovod.runner.nodes.channel import Channel, ChannelError, Tag
from horovod.runner.nodes.pipes import ReadPipe, WritePipe
from horovod.runner.nodes.remote import _OWN
from horovod.runner.nodes.replies import Greeting
from horovod.version import __version__


class Side:
    """A channel whose other end is in the test's hands."""

    def __init__(self, is_first: bool = True) -> None:
        self.selector = selectors.DefaultSelector()
        self.frames: list[tuple[Tag, bytes]] = []
        self.ends: list[str] = []
        receives, self.input = os.pipe()
        self.output, sends = os.pipe()
        os.set_blocking(self.output, False)
        self.pipe = WritePipe(self.selector, sends)
        self.channel = Channel(self.pipe.write, self._take, self.ends.append, is_first)
        self.source = ReadPipe(self.selector, receives, self.channel.feed)

    def _take(self, tag: Tag, payload: bytes) -> None:
        self.frames.append((tag, payload))

    def step(self) -> None:
        for key, _ in self.selector.select(0):
            key.data()

    def feed(self, data: bytes) -> None:
        os.write(self.input, data)
        self.step()

    def sent(self) -> bytes:
        self.step()
        try:
            return os.read(self.output, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.channel.close()
        self.source.close()
        self.pipe.close()
        os.close(self.input)
        os.close(self.output)


def _sent_by(act: Callable[[Channel], None]) -> bytes:
    side = Side()
    act(side.channel)
    data = side.sent()
    side.close()
    return data


@given(st.lists(st.tuples(st.sampled_from(Tag), st.text(max_size=9)), max_size=5), st.data())
def test_frames_arrive_whole_whatever_the_pieces(said: list[tuple[Tag, str]], draw: st.DataObject) -> None:
    def say(sender: Channel) -> None:
        for tag, text in said:
            sender.send(tag, text)
        sender.send_bytes(Tag.OUTPUT, 7, 1, b"\xff\0")

    data = b"Welcome to this host\r\n" + _sent_by(say)
    side = Side()
    while data:
        count = draw.draw(st.integers(1, len(data)))
        side.feed(data[:count])
        data = data[count:]
    taken = [(tag, channel.content(payload)) for tag, payload in side.frames[:-1]]
    assert taken == said and channel.stream_bytes(side.frames[-1][1]) == (7, 1, b"\xff\0")
    side.close()


@pytest.mark.parametrize(
    "noise",
    [
        channel.GREETING + b"\xff\xff\xff\xff\x01",
        channel.GREETING + b"\0\0\0\0\x63",
    ],
)
def test_what_is_no_frame_ends_the_channel_once(noise: bytes) -> None:
    side = Side()
    side.feed(noise)
    assert side.ends == ["what its agent sent is no message: something else writes to its output"]
    assert side.frames == []
    side.channel.send(Tag.PING)  # without effect
    side.close()


def test_endless_noise_in_front_is_no_channel() -> None:
    side = Side()
    for _ in range(40):
        if not side.ends:
            side.feed(b"x" * 50_000)
    (reason,) = side.ends
    assert "prints more than 1 MiB" in reason and "~/.bashrc" in reason
    side.close()


def test_the_end_of_the_other_side_is_told_once() -> None:
    side = Side()
    side.feed(channel.GREETING)
    os.close(side.input)
    side.step()
    side.input = os.open(os.devnull, os.O_RDONLY)
    assert side.ends == [""]
    side.close()


def test_the_end_comes_while_something_is_unsent() -> None:
    """Both directions are ready in one round, in either order."""
    side = Side()
    side.feed(channel.GREETING)
    side.channel.send(Tag.WORK, "x" * (1 << 20))
    os.close(side.input)
    os.close(side.output)
    ready = sorted(side.selector.select(0), key=lambda each: each[0].fileobj != side.source._descriptor)
    assert len(ready) == 2
    for key, _ in ready:
        key.data()
    assert side.ends == [""] and not side.pipe.unsent


def test_the_launcher_says_nothing_before_the_agent_has() -> None:
    """What a login script reads is not the launcher's greeting, but an empty line."""
    side = Side(is_first=False)
    side.channel.send(Tag.ASK, {"ports": None})
    assert side.sent().strip(b"\n") == b""
    side.feed(b"Welcome\nhorovod agent of another kind\n" + channel.GREETING)
    said = side.sent()
    assert said.startswith(channel.GREETING) and said.endswith(b'{"ports": null}')
    side.close()


def test_the_greeting_is_found_behind_what_no_script_has_read() -> None:
    launcher = Side(is_first=False)
    agent = Side()
    agent.feed(launcher.sent())
    launcher.feed(agent.sent())
    launcher.channel.send(Tag.PING)
    agent.feed(launcher.sent())
    assert agent.frames == [(Tag.PING, b"null")]
    launcher.close()
    agent.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"2 0.0.7", f"it has horovod 0.0.7 and this host has {__version__}: install the same version"),
        (b"1", f"it has horovod of another version and this host has {__version__}: install the same"),
        (f"99 {__version__}".encode(), f"it has horovod {__version__} (protocol 99) and this host has"),
    ],
)
def test_another_version_is_named_at_once(line: bytes, said: str) -> None:
    side = Side(is_first=False)
    side.feed(b"\nhorovod agent " + line + b"\n" + b"\0\0\0\1\x14x")
    (reason,) = side.ends
    assert reason.startswith(said) and side.frames == []
    side.close()


_READERS = {
    Tag.HELLO: replies.greeting,
    Tag.STARTED: replies.started,
    Tag.REFUSED: replies.refused,
    Tag.OUTPUT: replies.written,
    Tag.ENDED: replies.exits,
    Tag.STOPPED: replies.stopped,
    Tag.FROM_SSH: replies.relayed,
    Tag.SSH_ENDED: replies.ssh_ended,
}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
).map(lambda said: json.dumps(said).encode())


@given(st.sampled_from(sorted(_READERS)), _JSON | st.binary(max_size=12))
def test_what_is_no_answer_is_named(tag: Tag, payload: bytes) -> None:
    try:
        _READERS[tag](payload)
    except ChannelError as error:
        assert f"what its agent sent as {tag.name} cannot be read" in str(error)


def test_a_greeting_may_know_more_and_not_less() -> None:
    said = {"launcher": "10.0.0.1", "address": None, "port": 7, "machine": "m", "more": [1]}
    assert replies.greeting(json.dumps(said).encode()) == Greeting("10.0.0.1", None, 7, "m")
    del said["port"]
    with pytest.raises(ChannelError):
        replies.greeting(json.dumps(said).encode())


@pytest.mark.parametrize("said", ["UNKNOWN", "a\0b", "host.example", "", 7.5])
def test_what_is_no_address_is_not_looked_up(said: object) -> None:
    """sshd itself tells UNKNOWN, where its connection is no socket."""
    payload = json.dumps({"launcher": said, "address": said, "port": 7, "machine": "m"}).encode()
    assert replies.greeting(payload) == Greeting(None, None, 7, "m")


@pytest.mark.parametrize("payload", [b"[[3, %d, null, []]]" % 10**30, b"[[%d, 0, null, []]]" % -(10**30)])
def test_a_number_that_no_system_has_is_no_answer(payload: bytes) -> None:
    with pytest.raises(ChannelError):
        replies.exits(payload)


def test_an_end_is_told_as_it_was() -> None:
    assert replies.exits(b'[[3, -9, "x", ["a", "b"]]]') == [Exit(3, -9, "x", ("a", "b"))]
    assert replies.written(b"\0\0\0\4\1text") == (4, "stderr", b"text")


def test_hosts_of_one_machine_stand_together() -> None:
    one, two, three, four = hosts = [Host(name, 1) for name in ("a", "b", "c", "d")]
    assert machine.together(hosts, {"a": "m", "b": "n", "c": "m", "d": None}) == [[one, three], [two], [four]]


def test_names_of_one_machine_at_one_address_are_twins() -> None:
    def twins(*places: tuple[str, str | None, str | None, bool]) -> list[list[str]]:
        return machine.twins([machine.Place(*place) for place in places])

    one = ("node1", "m", "10.0.0.1", False)
    assert twins(one, ("node1.cluster", "m", "10.0.0.1", False)) == [["node1", "node1.cluster"]]
    assert twins(one, ("node1-ib", "m", "10.1.0.1", False), ("other", "n", "10.0.0.1", False)) == []
    here = ("localhost", "m", None, True)
    assert twins(here, ("head.cluster", "m", "10.0.0.9", True), one) == [["localhost", "head.cluster"]]
    assert twins(("a", None, "10.0.0.1", False), ("b", None, "10.0.0.1", False)) == []
    assert machine.identity() == machine.identity() is not None


def test_names_of_this_host_are_one_host() -> None:
    found = united(parse(f"far:3,127.0.0.1:1,LOCALHOST:2,{os.uname().nodename}:1,[::1]:1"))
    assert [str(host) for host in found] == ["far:3", "127.0.0.1:5"]


def test_addresses_and_the_full_name_of_this_host_are_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives a host's own name an address of its own; other names are not looked up."""
    asked: list[str] = []

    def look_up(name: str) -> list[str]:
        asked.append(name)
        return {"here.cluster": ["10.9.9.9"], "here.old": ["127.0.1.1"], "here.far": ["10.9.9.8"]}[name]

    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="here"))
    monkeypatch.setattr(interfaces, "addresses", lambda: [interfaces.Address("eth0", "10.9.9.9")])
    monkeypatch.setattr(launchers, "_addresses", look_up)
    launchers._leads_here.cache_clear()
    ours = ["here", "HERE.cluster", "here.old", "10.9.9.9", "127.0.1.1", "localhost"]
    others = ["here.far", "10.9.9.8", "127.0.0.2", "there.cluster", "here-ib", "fe80::1%eth0"]
    assert [name for name in ours + others if launchers.is_this_host(name)] == ours
    assert asked == ["here.cluster", "here.old", "here.far"]
    monkeypatch.undo()
    launchers._leads_here.cache_clear()


@pytest.mark.parametrize(
    "name",
    ["HOME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "TMPDIR", "HOROVOD_SECRET_KEY", "HOROVOD_ELASTIC_ADDR"],
)
def test_what_belongs_to_a_host_stays_there(name: str) -> None:
    assert _OWN.fullmatch(name)


@pytest.mark.parametrize("name", ["PATH", "HOMES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HOROVOD_TIMELINE"])
def test_what_the_user_has_set_goes_along(name: str) -> None:
    assert not _OWN.fullmatch(name)


class _Greeted:
    def __init__(self, launcher: str | None) -> None:
        self.greeting = Greeting(launcher, None, None, None)


def test_the_store_listens_where_the_hosts_have_seen_the_launcher() -> None:
    def own(*seen: str | None) -> list[str]:
        return reach.own_addresses([_Greeted(address) for address in seen], ANY_NETWORK)  # type: ignore[misc]

    assert own("127.0.0.1", "127.0.0.1") == ["127.0.0.1"]
    behind_a_translation = own("192.0.2.77", None)
    assert behind_a_translation and "192.0.2.77" not in behind_a_translation


def test_a_lost_host_is_the_cause_whatever_its_ranks_say_later() -> None:
    lost = [Exit(rank, 1, lost="gone") for rank in (2, 3)]
    from horovod.bootstrap.store.verdicts import Kind, Verdict

    cause = arbitrate(lost[0], [*lost, Exit(0, 1)], [Verdict(2, Kind.DIED, 0, "rank 0 died")])
    assert (cause.rank, cause.exit) == (2, lost[0])
