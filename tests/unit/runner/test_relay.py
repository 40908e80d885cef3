"""A relay's two ends, with a program of the test's own in place of ssh; who is to blame when one is lost."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from load import within

from horovod.runner.nodes import relay, replies, ssh
from horovod.runner.nodes.channel import Channel, Tag
from horovod.runner.nodes.pipes import ReadPipe, WritePipe
from horovod.runner.nodes.relay import RelayClient, RelayServer
from horovod.runner.nodes.route import Route
from horovod.runner.nodes.ssh import Target


class _Children:
    def __init__(self) -> None:
        self.on_end: dict[int, Callable[[], None]] = {}

    def expect(self, pid: int, is_tool: bool) -> None:
        assert is_tool

    def look_after(self, pid: int, on_end: Callable[[], None]) -> None:
        self.on_end[pid] = on_end

    def take_code(self, pid: int) -> int | None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return None
        self.on_end.pop(pid)()
        return os.waitstatus_to_exitcode(status)


class _Guardian:
    def __init__(self) -> None:
        self.watched: list[int] = []

    def watch(self, session: int) -> None:
        self.watched.append(session)

    def forget(self, session: int) -> None:
        self.watched.remove(session)


class _Loop:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.children = _Children()


class _Both:
    """An agent that relays, and the launcher's end, with a pipe between them; what goes to the agent is
    handed over at once.
    """

    def __init__(self) -> None:
        self.loop, self.guardian = _Loop(), _Guardian()
        receives, sends = os.pipe()
        self.pipe = WritePipe(self.loop.selector, sends)
        agent = Channel(self.pipe.write, lambda tag, payload: None, lambda reason: None)
        self.server = RelayServer(self.loop, agent, self.pipe)  # type: ignore[arg-type]
        self.launcher = Channel(lambda data: None, self._take, lambda reason: None, is_first=False)
        self.source = ReadPipe(self.loop.selector, receives, self.launcher.feed)
        self.client = RelayClient(self)  # type: ignore[arg-type]
        self.output, self.errors = bytearray(), bytearray()
        self.has_ended = False

    def send(self, tag: Tag, said: dict) -> None:
        """As that of Connection."""
        if tag == Tag.DIAL:
            self.server.dial(said, lambda: self.guardian)  # type: ignore[arg-type,return-value]
        else:
            assert tag == Tag.END_SSH
            self.server.end(said)

    def send_bytes(self, tag: Tag, number: int, data: bytes) -> None:
        assert tag == Tag.TO_SSH
        frames: list[bytes] = []
        sender = Channel(frames.append, lambda *frame: None, lambda reason: None)
        sender.send_bytes(tag, number, 0, data)
        self.server.write(frames[-1][5:])  # behind length and tag

    def dial(self) -> relay.RelayedSsh:
        process = self.client.dial(Target("n"))
        process.on_output = self._take_output
        process.on_errors = self.errors.extend
        return process

    def step(self) -> None:
        for key, _ in self.loop.selector.select(0.05):
            key.data()
        self.server.tend()

    def run(self, until) -> None:
        deadline = time.monotonic() + within(30)
        while not until():
            assert time.monotonic() < deadline
            self.step()

    def close(self) -> None:
        self.server.close()
        self.source.close()
        self.pipe.close()
        self.loop.selector.close()

    def _take(self, tag: Tag, payload: bytes) -> None:
        if tag == Tag.FROM_SSH:
            self.client.take(*replies.relayed(payload))
        else:
            assert tag == Tag.SSH_ENDED
            self.client.take_status(*replies.ssh_ended(payload))

    def _take_output(self, data: bytes) -> None:
        self.output += data
        self.has_ended |= not data


@pytest.fixture
def both() -> Iterator[_Both]:
    both = _Both()
    yield both
    both.close()


def _runs(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    monkeypatch.setattr(ssh, "command", lambda target, is_relayed: list(command))


def test_bytes_of_both_directions_and_the_status_come_through(
    both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(monkeypatch, "sh", "-c", "head -c 3000000; echo bad >&2; exit 7")
    process = both.dial()
    data = os.urandom(3_000_000)
    process.write(data)
    both.run(lambda: process.status() is not None)
    assert bytes(both.output) == data and both.has_ended
    assert (process.status(), bytes(both.errors)) == (7, b"bad\n")
    assert both.server.is_idle and both.guardian.watched == []


def test_a_relay_reads_no_more_while_its_own_channel_is_full(
    both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(monkeypatch, sys.executable, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)")
    both.source.hold(True)
    process = both.dial()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        both.step()
    assert 1 << 16 < both.pipe.unsent <= relay._MOST_UNSENT + (1 << 19)
    both.source.hold(False)
    both.run(lambda: len(both.output) > 10 << 20)  # and goes on when it has room
    process.kill()
    both.run(lambda: both.server.is_idle)
    count = len(both.output)
    both.step()
    assert len(both.output) == count and process.status() is None  # nothing is heard of it any more


def test_a_stopped_ssh_ends_with_its_relay(both: _Both, monkeypatch: pytest.MonkeyPatch) -> None:
    _runs(monkeypatch, "sleep", "60")
    process = both.dial()
    os.kill(both.guardian.watched[0], signal.SIGSTOP)
    process.close()
    both.run(lambda: both.server.is_idle)


def test_an_ssh_that_is_not_there_is_an_end_with_a_reason(
    both: _Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(monkeypatch, "/nowhere/ssh")
    process = both.dial()
    both.run(lambda: process.status() is not None)
    assert process.status() == 127 and both.has_ended and b"No such file" in both.errors


class _Silent(Route):
    """One whose connection is in the test's hands."""

    def __init__(self, host: str, relay: "Route | None", heard: float, ended: float | None = None) -> None:
        self.cuts: list[str] = []
        super().__init__(Target(host), None, None)  # type: ignore[arg-type]
        self.on_cut = self.cuts.append
        self.relay, self.heard, self.is_greeted = relay, heard, True
        self._connection = _Connection(ended)  # type: ignore[assignment]
        if isinstance(relay, _Silent):
            relay._behind.append(self)


class _Connection:
    errors = reason = ""

    def __init__(self, ended: float | None) -> None:
        self.ended = ended

    def status(self) -> int | None:
        return 255

    def kill(self) -> None:
        self.ended = self.ended or 0.0


def test_a_host_is_not_judged_while_its_relay_may_be_the_cause() -> None:
    first = _Silent("a", None, heard=100.0)
    second = _Silent("b", first, heard=100.0)
    last = _Silent("c", second, heard=100.0, ended=101.0)
    assert last.why_lost(101.1) == "" and last.next_time(101.1) < 101.5  # news of a relay may be on the way
    assert last.why_lost(105.0) == ""  # nothing has been heard of the relays
    second.heard = first.heard = 105.0
    assert "was killed, or the connection of ssh broke" in last.why_lost(105.1)
    first._connection.ended = 105.2  # type: ignore[union-attr]
    assert second.is_in_doubt(105.3) and last.why_lost(105.3) == ""


def test_all_behind_a_lost_relay_are_lost_by_it() -> None:
    first = _Silent("a", None, heard=100.0)
    second = _Silent("b", first, heard=100.0)
    last = _Silent("c", second, heard=100.0)
    other = _Silent("d", first, heard=100.0)
    other.relay = None  # the launcher has dialled it since
    first.cut_those_behind()
    assert second.cuts == ["it was reached by way of a, which is lost"] and second.is_gone
    assert last.cuts == ["it was reached by way of b, which is lost"] and last.is_gone
    assert other.cuts == [] and not other.is_gone


def test_a_relay_that_reaches_nobody_is_not_asked_again_when_the_launcher_does() -> None:
    first = _Silent("a", None, heard=100.0)
    behind = [_Silent(name, first, heard=100.0) for name in "bc"]
    first._misses = 2
    assert first.is_able  # it has reached some
    for other in behind:
        other.relay = None  # and the launcher has dialled them since
    assert not first.is_able
