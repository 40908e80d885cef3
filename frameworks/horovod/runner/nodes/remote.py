"""The ranks of another host, by an agent that ssh has started there."""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

from horovod.version import __version__

from ..ending import Exit
from ..loop import Loop
from . import ssh
from .channel import Channel, Tag, content, output
from .guardian import Guardian
from .node import STREAMS, Events, Work

_PING_SECONDS = 2.0
_SILENCE_SECONDS = 8.0
_READ_BYTES = 1 << 16
_MOST_ERRORS = 1 << 16
_GOODBYE_SECONDS = 1.0
_STATUS_SECONDS = 2.0  # for ssh to end after its agent
_LOST_STATUS = 1
_NEVER = float("inf")
# Of this host alone, so that the ranks there have their own.
_OWN = re.compile(
    "HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|MAIL|DISPLAY|TMPDIR|TMP|TEMP|_|SHLVL|XAUTHORITY|"
    "DBUS_SESSION_BUS_ADDRESS|(SSH|XDG|SUDO)_.*|BASH_FUNC_.*|HOROVOD_SECRET_.*"
)


@dataclass(frozen=True)
class Greeting:
    """What an agent has told of its host.

    ``launcher`` is the address of the launcher as that host sees it, ``address`` the one of the host as the
    launcher sees it; ``port`` is one that is free there. None: not known.
    """

    version: str
    pid: int
    name: str
    launcher: str | None
    address: str | None
    port: int | None


class RemoteNode:
    """The node of another host; see ``node.Node``. ``greeting`` is there when its agent is; ``failure`` says
    why there is none, or why its work was refused, with ``failure_status`` for the job.
    """

    def __init__(
        self, host: str, loop: Loop, guardian: Guardian, port: int | None, identity_file: str | None
    ) -> None:
        self.host = host
        self.stopped: list[int] = []
        self.is_finished = False
        self.greeting: Greeting | None = None
        self.failure: str | None = None
        self.failure_status = _LOST_STATUS
        self._loop = loop
        self._guardian = guardian
        self._port = port
        self._events: Events | None = None
        self._alive: set[int] = set()
        self._open: set[tuple[int, str]] = set()
        self._owed: dict[tuple[int, str], int] = {}  # bytes of output that found no room, by stream
        self._errors = bytearray()
        self._is_ended = False
        self._ended = 0.0  # when
        self._is_lost = False
        self._status: int | None = None
        self._process = subprocess.Popen(
            ssh.command(host, port, identity_file),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._process.returncode = 0  # the loop's children are reaped together
        guardian.watch(self._process.pid)
        loop.children.expect(self._process.pid, is_tool=True)
        self._stderr = _taken(self._process.stderr)
        os.set_blocking(self._stderr, False)
        loop.selector.register(self._stderr, selectors.EVENT_READ, self._read_errors)
        self._channel = Channel(
            loop.selector,
            _taken(self._process.stdout),
            _taken(self._process.stdin),
            self._on_frame,
            self._on_end,
        )
        self._tended = self._heard = self._pinged = time.monotonic()

    def start(
        self,
        work: Work,
        secret: bytes,
        marker: str,
        folder: str,
        environment: Mapping[str, str],
        events: Events,
    ) -> None:
        """Has the agent start the ranks; how they fare, ``events`` will tell.

        Args:
            work: what to run, with variables that this launch sets.
            secret: the job's.
            marker: what stands in the environment of all processes of the job.
            folder: where they are started, if there is such a folder.
            environment: the launcher's own, of which ranks get what is not this host's alone.
            events: told what happens.
        """
        self._events = events
        self._alive = {place.rank for place in work.placements}
        self._open = {(rank, stream) for rank in self._alive for stream in STREAMS}
        passed = {name: value for name, value in environment.items() if not _OWN.fullmatch(name)}
        said = {
            **asdict(work),
            "placements": [astuple(place) for place in work.placements],
            "environment": {**passed, **work.environment},
            "secret": secret.hex(),
            "marker": marker,
            "folder": folder,
            "host": self.host,
        }
        self._channel.send(Tag.WORK, said)

    def signal(self, number: int) -> None:
        """Sends a signal to the ranks that live there."""
        said = {"number": int(number), "pauses": number == signal.SIGSTOP}
        self._channel.send(Tag.SIGNAL, said)

    def show_stacks(self) -> None:
        """Has the ranks there write on their stderr where they are."""
        self._channel.send(Tag.SHOW_STACKS)

    def find_stopped(self) -> None:
        """Asks which ranks are stopped; the answer comes soon."""
        self._channel.send(Tag.FIND_STOPPED)

    def tend(self, now: float) -> float:
        """Gives room for output, and watches whether the agent answers."""
        for key in [key for key in self._owed if self._events is not None and self._events.has_room(*key)]:
            self._give_room(key[1], self._owed.pop(key))
        if self._is_ended:
            self._tell_end(now)
            is_waiting = self._status is None and not self._is_lost
            return self._ended + _STATUS_SECONDS if is_waiting else _NEVER
        if now > self._tended + _PING_SECONDS + 1.0:  # this process has not run: it was stopped, or starved
            self._heard = now
        self._tended = now
        if now >= self._pinged + _PING_SECONDS:
            self._pinged = now
            self._channel.send(Tag.PING)
        # Before its greeting it may still be starting: how long is for --start-timeout to say.
        if self.greeting is not None and now >= self._heard + _SILENCE_SECONDS:
            self._give_up(f"its agent has not answered for {_SILENCE_SECONDS:g} s")
        return self._pinged + _PING_SECONDS

    def finish(self) -> None:
        """Ends what the ranks there have left behind."""
        self._channel.send(Tag.FINISH)
        self.is_finished |= self._is_ended or (not self._open and self._events is None)

    def abandon(self) -> None:
        """Ends the streams; what the host still has of them is lost, unless it is on its way."""
        self._channel.send(Tag.ABANDON)
        self._end_streams()

    def close(self) -> None:
        """Lets the agent go; one that does not, loses ssh and ends by itself."""
        self._channel.send(Tag.DONE)
        end = time.monotonic() + _GOODBYE_SECONDS
        while self.greeting is not None and not self._is_ended and time.monotonic() < end:
            self._loop.step(end, [])
        self._channel.close()
        self._close_errors()
        if self._loop.children.take_code(self._process.pid) is None and self._status is None:
            os.kill(self._process.pid, signal.SIGTERM)
        self._guardian.forget(self._process.pid)

    def _on_frame(self, tag: Tag, payload: bytes) -> None:
        self._heard = time.monotonic()
        if tag == Tag.OUTPUT:
            self._take_output(*output(payload))
            return
        said = content(payload)
        if tag == Tag.HELLO:
            self._greet(Greeting(**said))
        elif tag == Tag.STARTED and self._events is not None:
            self._events.started(*said)
        elif tag == Tag.REFUSED:
            self.failure, self.failure_status = f"{self.host}: {said[0]}", int(said[1])
            self._lose(str(said[0]), int(said[1]))
        elif tag == Tag.ENDED:
            self._take_exits(said)
        elif tag == Tag.STOPPED:
            self.stopped = list(said)
        elif tag == Tag.FINISHED:
            self.is_finished = True

    def _greet(self, greeting: Greeting) -> None:
        self.greeting = greeting
        if greeting.version != __version__:
            self.failure = (
                f"{self.host} has horovod {greeting.version} and this host has {__version__}: install the "
                "same version on all hosts"
            )

    def _take_output(self, rank: int, stream: int, data: bytes) -> None:
        key = rank, STREAMS[stream]
        if self._events is None or key not in self._open:
            return
        if not data:
            self._open.discard(key)
        self._events.output(*key, data)
        if data and self._events.has_room(*key):
            self._give_room(key[1], len(data))
        elif data:
            self._owed[key] = self._owed.get(key, 0) + len(data)

    def _give_room(self, stream: str, count: int) -> None:
        self._channel.send(Tag.ROOM, {"stream": stream, "bytes": count})

    def _take_exits(self, said: list[Any]) -> None:
        exits = [Exit(rank, code, killer, tuple(notes)) for rank, code, killer, notes in said]
        self._alive -= {each.rank for each in exits}
        if self._events is not None:
            self._events.ended(exits)

    def _on_end(self) -> None:
        self._is_ended, self._ended = True, time.monotonic()

    def _tell_end(self, now: float) -> None:
        """Once ssh has ended, too, which says why; soon in any case: what a login has started in the
        background may keep ssh for ever.
        """
        if self._is_lost:
            return
        if self._status is None:
            self._status = self._loop.children.take_code(self._process.pid)
        if self._status is None and now >= self._ended + _STATUS_SECONDS:
            self._give_up("its agent has ended, and ssh has not")
        if self._status is None or (self._events is None and self.failure is not None):
            return
        self._read_errors()
        errors = self._errors.decode(errors="replace")
        if self.greeting is None:
            self.failure = (
                self.failure or f"{self.host}: {ssh.explain(self.host, self._port, self._status, errors)}"
            )
        else:
            self._lose(ssh.farewell(self._status, errors))

    def _give_up(self, reason: str) -> None:
        self._is_ended = True
        self._channel.close()
        os.kill(self._process.pid, signal.SIGKILL)
        if self.greeting is None:
            self.failure = f"{self.host}: {reason}"
        self._lose(reason)

    def _lose(self, reason: str, status: int = _LOST_STATUS) -> None:
        """Nothing will be heard of the ranks there any more."""
        lost, self._alive = sorted(self._alive), set()
        self.is_finished = self._is_lost = True
        self._end_streams()
        if lost and self._events is not None:
            self._events.ended([Exit(rank, status, lost=reason) for rank in lost])

    def _end_streams(self) -> None:
        streams, self._open = sorted(self._open), set()
        self._owed.clear()
        for rank, stream in streams:
            if self._events is not None:
                self._events.output(rank, stream, b"")

    def _read_errors(self) -> None:
        if self._stderr < 0:
            return
        try:
            data = os.read(self._stderr, _READ_BYTES)
        except BlockingIOError:
            return
        self._errors += data
        del self._errors[:-_MOST_ERRORS]
        if not data:
            self._close_errors()

    def _close_errors(self) -> None:
        if self._stderr >= 0:
            self._loop.selector.unregister(self._stderr)
            os.close(self._stderr)
            self._stderr = -1


def _taken(file: Any) -> int:
    """The descriptor of a pipe of Popen's, which is no longer Popen's."""
    descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, False)
    file.close()
    return descriptor
