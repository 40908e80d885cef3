"""Hosts that dial a launcher, in one process: who counts as there, for how long, and who may refuse one."""

import errno
import os
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from load import within

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.network.auth import Keys
from horovod.bootstrap.network.interfaces import Network
from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE
from horovod.runner.elastic.named_hosts import NamedHosts
from horovod.runner.job import Job
from horovod.runner.launchers.job_hosts import JobHosts
from horovod.runner.nodes import dial_in, joining, sealed
from horovod.runner.nodes.channel import Channel, Tag
from horovod.runner.nodes.dial_in import DialIn, RefusedError
from horovod.runner.nodes.joining import Application, Joining
from horovod.runner.nodes.node import Work
from horovod.runner.nodes.route import Route
from horovod.runner.nodes.way import PING_SECONDS

SECRET = bytes(range(32))


class _Loop:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.attendants: list[Any] = []

    def wake(self) -> None:
        """It looks again soon."""


class Meeting:
    """A launcher's end, and agents that dial it."""

    def __init__(self, stack: ExitStack) -> None:
        self.loop = _Loop()
        self.agents: list[DialIn] = []
        self.told: list[str] = []  # by agents, to people
        stack.callback(self.loop.selector.close)
        self.port = endpoints.free_port()
        self.joining = Joining(self.loop, SECRET, ["127.0.0.1"], self.port, 30.0, "1", _ignore)  # type: ignore[arg-type]
        stack.callback(self.joining.close)
        stack.callback(lambda: [agent.close() for agent in self.agents])

    def dial(self, name: str = "pod", start_seconds: float = 60.0) -> DialIn:
        where = ("127.0.0.1", self.port)
        agent = DialIn(self.loop, where, SECRET, name, None, None, start_seconds, 30.0, self.told.append)  # type: ignore[arg-type]
        agent.on_bytes = Channel(agent.write, _ignore_frame, _ignore).feed
        self.agents.append(agent)
        return agent

    def bring(self, name: str = "pod") -> DialIn:
        """Dials, and waits until both ends know that it is there."""
        agent = self.dial(name)
        self.run_until(lambda: name in self.here and agent._stream.is_connected)
        return agent

    @property
    def here(self) -> list[str]:
        return [way.host for way in self.joining.here]

    def step(self, agents: list[DialIn]) -> None:
        for each in [*agents, self.joining]:
            each.tend(time.monotonic())
        for key, _ in self.loop.selector.select(0.01):
            key.data()

    def run_until(self, condition: Callable[[], bool], agents: list[DialIn] | None = None) -> None:
        """With ``agents``: the others are silent."""
        end = time.monotonic() + within(10.0)
        while not condition():
            assert time.monotonic() < end, self.here
            self.step(self.agents if agents is None else agents)


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with ExitStack() as stack:
        yield Meeting(stack)


def _ignore(_: object) -> None:
    """Nobody listens."""


def _ignore_frame(tag: Tag, payload: bytes) -> None:
    """Nobody listens."""


def test_a_launcher_that_waits_wakes_to_show_that_it_is_there(meeting: Meeting) -> None:
    meeting.bring()
    now = time.monotonic()
    assert now < meeting.joining.tend(now) <= now + PING_SECONDS


def test_who_has_left_is_not_counted_and_may_come_back(meeting: Meeting) -> None:
    first = meeting.bring()
    first.close()
    meeting.run_until(lambda: not meeting.here, [])
    meeting.dial()
    meeting.run_until(lambda: meeting.here == ["pod"], meeting.agents[1:])


def test_a_second_agent_of_a_name_says_so_at_once_and_once(meeting: Meeting) -> None:
    meeting.bring()
    meeting.told.clear()
    began = time.monotonic()
    second = meeting.dial()
    meeting.run_until(lambda: bool(meeting.told))
    assert time.monotonic() < began + within(dial_in._FIRST_TELL_SECONDS / 2)
    end = time.monotonic() + 1.0
    meeting.run_until(lambda: time.monotonic() > end)
    assert len(meeting.told) == 1 and "give this one another, as --name pod-2" in meeting.told[0]
    assert not second.reason


def test_who_is_cut_off_without_a_word_is_not_counted_until_he_is_back(meeting: Meeting) -> None:
    meeting.bring("a")
    (way,) = meeting.joining.here
    way.stream.drop("a network broke it")
    assert not meeting.here
    meeting.run_until(lambda: meeting.here == ["a"])
    assert meeting.joining.here == [way]


def test_who_says_nothing_any_more_is_not_counted(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has lost its power closes no connection."""
    monkeypatch.setattr(sealed, "_SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(joining, "PING_SECONDS", 0.1)
    silent, other = meeting.bring("a"), meeting.bring("b")
    connection, lasts = silent._stream._connection, other._stream._connection
    assert connection is not None
    connection.on_message = connection.on_end = _ignore
    meeting.run_until(lambda: meeting.here == ["b"], [other])
    end = time.monotonic() + 1.5
    meeting.run_until(lambda: time.monotonic() > end, [other])
    assert meeting.here == ["b"] and other._stream._connection is lasts


def test_an_agent_without_a_descriptor_dials_again(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> int:
        monkeypatch.undo()
        raise OSError(errno.EMFILE, "too many open files")

    agent = meeting.dial()
    meeting.run_until(lambda: bool(agent._dialled), [])
    monkeypatch.setattr(os, "dup", refuse)
    agent.tend(time.monotonic())
    assert not agent._stream.is_connected
    meeting.run_until(lambda: agent._stream.is_connected)


def test_an_agent_that_gets_no_descriptor_for_long_dials_now_and_then(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        refusals.append(time.monotonic())
        raise OSError(errno.EMFILE, "too many open files")

    refusals: list[float] = []
    monkeypatch.setattr(dial_in, "SealedConnection", refuse)
    agent = meeting.dial()
    end = time.monotonic() + 1.0
    meeting.run_until(lambda: time.monotonic() > end)
    assert 1 <= len(refusals) <= 11 and not agent._stream.is_connected
    monkeypatch.undo()
    meeting.run_until(lambda: agent._stream.is_connected)


def test_a_host_that_the_job_uses_may_be_away_until_its_limit(meeting: Meeting) -> None:
    agent = meeting.bring()
    hosts = NamedHosts({}, meeting.joining, 1)
    (way,) = meeting.joining.here
    way.dial(None)
    way.inheritance(b"", "", {})
    way.stream.drop("a network broke it")
    assert meeting.here == ["pod"] and hosts.tend(0.0) == {"pod": 1} and meeting.joining.way("pod") is way
    meeting.run_until(lambda: agent._stream.is_connected and way.stream.is_connected)
    agent.close()  # says so, and then nobody waits for it
    meeting.run_until(lambda: not meeting.here, [])
    assert hosts.tend(0.0) == {} and way.why_lost(0.0) == "its agent has left"
    meeting.agents.remove(agent)
    meeting.bring()  # as it is started anew, under its name
    assert hosts.tend(0.0) == {"pod": 1} and meeting.joining.way("pod") is not way


def test_the_launcher_says_how_long_a_connection_may_be_away(meeting: Meeting) -> None:
    agent = meeting.bring()
    (way,) = meeting.joining.here
    inherited = {HOST_TIMEOUT_VARIABLE: "300", "HOME": "/launcher"}
    said = way.inheritance(b"", "", inherited)
    assert said["environment"] == {HOST_TIMEOUT_VARIABLE: "300"}
    agent.job_secret(said)
    meeting.joining.close()
    way.stream.close()
    now = time.monotonic()
    meeting.run_until(lambda: not agent._stream.is_connected, [])
    agent.tend(now + 290)
    assert not agent.reason
    agent.tend(time.monotonic() + 310)
    assert agent.reason.startswith(f"no connection to 127.0.0.1:{meeting.port} for 300 s")


def _answer(listener: socket.socket, answer: bytes) -> socket.socket:
    connection, _ = listener.accept()
    connection.settimeout(within(2.0))
    connection.sendall(answer)
    return connection


def _own() -> Application:
    return Application("00", "pod", None, None, 0)


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n" + b"x" * 100, ConnectionRefusedError, "is no horovodrun"),
        (b"HVDLINK\0\0\1" + bytes(100), RefusedError, "does not hold this host's secret"),
    ],
    ids=["a proxy", "another launcher"],
)
def test_who_refuses_is_left_without_a_connection(answer: bytes, kind: type, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(_answer(listener, answer)))
        thread.start()
        with pytest.raises(kind, match=reason) as error:
            dial_in._reach(listener.getsockname(), SECRET, _own(), 0)
        thread.join()
        with taken[0] as connection, suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
        assert error.value


def test_what_is_no_launcher_is_asked_again_until_there_is_one() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        made = Meeting(stack)
        proxied, made.port = made.port, listener.getsockname()[1]
        threading.Thread(target=_be_a_proxy, args=(listener, proxied), daemon=True).start()
        agent = made.dial()
        made.run_until(lambda: made.here == ["pod"])
        assert not agent.reason


def _be_a_proxy(listener: socket.socket, port: int) -> None:
    """Answers the first two by itself, and passes on what the third one says."""
    for _ in range(2):
        _answer(listener, b"HTTP/1.1 503 Service Unavailable\r\n" + b"x" * 100).close()
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", port))
    for source, target in ((near, far), (far, near)):
        threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), source, target:
        while data := source.recv(4096):
            target.sendall(data)


def test_a_connection_that_ends_when_it_is_taken_ends_alone(meeting: Meeting) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        one, _ = listener.accept()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()  # by a reset
    before = len(os.listdir("/proc/self/fd"))
    meeting.joining._admit(one, dial_in.TERMS, Keys(b"1", b"2"))
    assert one.fileno() == -1 and len(os.listdir("/proc/self/fd")) == before - 1


def test_connections_that_bring_nothing_do_not_make_a_host_last(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the packets of a handshake pass, and larger ones do not."""
    monkeypatch.setattr(sealed, "_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(joining, "PING_SECONDS", 0.05)
    agent = meeting.bring()
    (way,) = meeting.joining.here
    way.is_used = True
    connections: list[sealed.SealedConnection] = []
    resume, read = way.stream.resume, os.read

    def begin(connection: sealed.SealedConnection, arrived: int) -> None:
        connections.append(connection)
        resume(connection, arrived)

    def swallow(descriptor: int, most: int) -> bytes:
        data = read(descriptor, most)
        if any(descriptor == each._in._descriptor for each in connections):
            raise BlockingIOError
        return data

    monkeypatch.setattr(way.stream, "resume", begin)
    monkeypatch.setattr(way.stream, "_on_bytes", _ignore)
    monkeypatch.setattr(os, "read", swallow)
    way.stream.drop("it broke")
    meeting.run_until(lambda: len(connections) == 1)
    heard = way.heard
    meeting.run_until(lambda: len(connections) == 4)
    assert way.heard == heard
    monkeypatch.setattr(os, "read", read)
    agent.write(b"what has waited for a connection")
    had = way.stream.received
    meeting.run_until(lambda: way.stream.received > had)
    way.stream.drop("it broke again")
    meeting.run_until(lambda: len(connections) > 4 and way.stream.is_connected)
    assert way.heard > heard


def test_a_named_host_is_reached_by_ssh_although_an_agent_of_its_name_has_dialled() -> None:
    """More have dialled than a job with ranks that stay waits for: it knows nothing of the others."""
    hosts = JobHosts.__new__(JobHosts)
    own = {"_job": Job(Work(["true"], {}, (), 1), [], {}), "environment": {}, "network": Network()}
    rest = {"_logins": Counter(), "_number": "1", "_loop": None, "guardian": None}
    vars(hosts).update(own, **rest, welcome=SimpleNamespace(joining=SimpleNamespace(way=lambda host: "way")))
    assert isinstance(hosts.remote("pod").route, Route) and hosts.joined("pod") == "way"
