"""The ranks of another host, by an agent that ssh has started there."""

import random
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple

from ..ending import Exit
from . import replies, ssh
from .channel import ChannelError, Tag
from .connection import Connection
from .guardian import Guardian
from .loop import Loop
from .node import STREAMS, Events, Work
from .replies import Greeting

_PING_SECONDS = 2.0
_SILENCE_SECONDS = 8.0
_STATUS_SECONDS = 2.0  # for ssh to end after its agent
_LOGIN_SECONDS = 5.0  # after which a slow login holds up no others
_LOST_STATUS = 1
_TRIES = 6
_FIRST_PAUSE = 0.25  # between two tries, doubled each time
_MOST_PAUSE = 2.0
_NEVER = float("inf")
# Of this host alone, so that the ranks there have their own.
_OWN = re.compile(
    "HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|MAIL|DISPLAY|TMPDIR|TMP|TEMP|_|SHLVL|XAUTHORITY|"
    "DBUS_SESSION_BUS_ADDRESS|(SSH|XDG|SUDO)_.*|BASH_FUNC_.*|HOROVOD_SECRET_.*"
)


class RemoteNode:
    """The node of another host; see ``node.Node``. ``greeting`` is there when its agent is; ``failure`` says
    why there is none, or why its work was refused, with ``failure_status`` for the job.
    """

    def __init__(
        self,
        host: str,
        loop: Loop,
        guardian: Guardian,
        port: int | None,
        identity_file: str | None,
        ports: range | None = None,
    ) -> None:
        """``port`` and ``identity_file`` are for ssh; ``ports`` are those that the user allows the job."""
        self.host = host
        self.stopped: list[int] = []
        self.is_finished = False
        self.greeting: Greeting | None = None
        self.failure: str | None = None
        self.failure_status = _LOST_STATUS
        self._loop = loop
        self._guardian = guardian
        self._port = port
        self._identity_file = identity_file
        self._ports = ports
        self._connection: Connection | None = None
        self._tries = 0
        self._dial_time = 0.0
        self._events: Events | None = None
        self._alive: set[int] = set()
        self._open: set[tuple[int, str]] = set()
        self._owed: dict[tuple[int, str], int] = {}  # bytes of output that found no room, by stream
        self._is_lost = False
        self._tended = self._heard = self._pinged = 0.0

    def wants_to_dial(self, now: float) -> bool:
        """Whether ``dial`` is to be called: for the first time, or because sshd has dropped the last one."""
        return self._connection is None and self.failure is None and now >= self._dial_time

    def is_logging_in(self, now: float) -> bool:
        """Whether its ssh is one of those that sshd has not let in yet."""
        dialled = self._connection
        if dialled is None or dialled.ended is not None or now > dialled.began + _LOGIN_SECONDS:
            return False
        return not dialled.has_logged_in

    def dial(self) -> None:
        """Starts ssh, and the agent by it. Raises OSError where ssh cannot be started."""
        self._tries += 1
        words = ssh.command(self.host, self._port, self._identity_file)
        self._connection = Connection(words, self._loop, self._guardian, self._on_frame)
        self._tended = self._heard = self._pinged = time.monotonic()
        self._send(Tag.ASK, {"ports": None if self._ports is None else [self._ports[0], self._ports[-1]]})

    @property
    def delay(self) -> str:
        """Why there is neither a greeting nor a failure, as far as it is known."""
        if self._connection is None and self._tries:
            return "its sshd closes connections before the login (MaxStartups in its sshd_config?)"
        if self._connection is not None and self._connection.has_logged_in:
            return "ssh has logged in, but no agent has started: do scripts of the login (~/.bashrc) wait?"
        return ""

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
        self._send(Tag.WORK, said)

    def signal(self, number: int) -> None:
        """Sends a signal to the ranks that live there."""
        said = {"number": int(number), "pauses": number == signal.SIGSTOP}
        self._send(Tag.SIGNAL, said)

    def show_stacks(self) -> None:
        """Has the ranks there write on their stderr where they are."""
        self._send(Tag.SHOW_STACKS)

    def find_stopped(self) -> None:
        """Asks which ranks are stopped; the answer comes soon."""
        self._send(Tag.FIND_STOPPED)

    def tend(self, now: float) -> float:
        """Gives room for output, and watches whether the agent answers."""
        for key in [key for key in self._owed if self._events is not None and self._events.has_room(*key)]:
            self._give_room(key[1], self._owed.pop(key))
        connection = self._connection
        if connection is None:
            return self._dial_time if self._tries and self.failure is None else _NEVER
        if connection.ended is not None:
            before = self._connection, self._is_lost, self.failure
            self._tell_end(connection, connection.ended, now)
            if before != (self._connection, self._is_lost, self.failure):
                return now  # that is news: nobody waits any more
            is_waiting = connection.status() is None and not self._is_lost
            return connection.ended + _STATUS_SECONDS if is_waiting else _NEVER
        if now > self._tended + _PING_SECONDS + 1.0:  # this process has not run: it was stopped, or starved
            self._heard = now
        self._tended = now
        if now >= self._pinged + _PING_SECONDS:
            self._pinged = now
            if self.greeting is not None:
                self._send(Tag.PING)
        # Before its greeting it may still be starting: how long is for --start-timeout to say.
        if self.greeting is not None and now >= self._heard + _SILENCE_SECONDS:
            self._give_up(connection, f"its agent has not answered for {_SILENCE_SECONDS:g} s")
        return self._pinged + _PING_SECONDS

    def finish(self) -> None:
        """Ends what the ranks there have left behind."""
        self._send(Tag.FINISH)
        self.is_finished |= self._is_gone or (not self._open and self._events is None)

    def abandon(self) -> None:
        """Ends the streams; what the host still has of them is lost, unless it is on its way."""
        self._send(Tag.ABANDON)
        self._end_streams()

    def leave(self) -> None:
        """Lets the agent go; ``has_left`` tells when it is gone."""
        self._send(Tag.DONE)

    @property
    def has_left(self) -> bool:
        """Whether there is no agent to be waited for."""
        return self.greeting is None or self._is_gone

    def close(self) -> None:
        """Gives everything back. An agent that has not left loses ssh, and ends by itself."""
        if self._connection is not None:
            self._connection.close()

    @property
    def _is_gone(self) -> bool:
        return self._connection is None or self._connection.ended is not None

    def _send(self, tag: Tag, said: object = None) -> None:
        if self._connection is not None:
            self._connection.send(tag, said)

    def _on_frame(self, tag: Tag, payload: bytes) -> None:
        self._heard = time.monotonic()
        if tag == Tag.OUTPUT:
            self._take_output(*replies.written(payload))
        elif tag == Tag.HELLO:
            self.greeting = replies.greeting(payload)
        elif tag == Tag.STARTED:
            self._take_start(*replies.started(payload))
        elif tag == Tag.REFUSED:
            reason, status = replies.refused(payload)
            self.failure, self.failure_status = f"{self.host}: {reason}", status
            self._lose(reason, status)
        elif tag == Tag.ENDED:
            self._take_exits(replies.exits(payload))
        elif tag == Tag.STOPPED:
            self.stopped = replies.stopped(payload)
        elif tag == Tag.FINISHED:
            self.is_finished = True
        elif tag != Tag.PONG:
            raise ChannelError(f"its agent sent a {tag.name}, which is for agents")

    def _take_start(self, rank: int, pid: int) -> None:
        if self._events is not None and rank in self._alive:
            self._events.started(rank, pid)

    def _take_output(self, rank: int, stream: str, data: bytes) -> None:
        key = rank, stream
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
        self._send(Tag.ROOM, {"stream": stream, "bytes": count})

    def _take_exits(self, exits: list[Exit]) -> None:
        """Those of ranks that are not known to have ended: a refusal has ended all of them."""
        exits = [each for each in exits if each.rank in self._alive]
        self._alive -= {each.rank for each in exits}
        if exits and self._events is not None:
            self._events.ended(exits)

    def _tell_end(self, connection: Connection, ended: float, now: float) -> None:
        """Once ssh has ended, too, which says why; soon in any case: what a login has started in the
        background may keep ssh for ever.
        """
        if self._is_lost or (self._events is None and self.failure is not None):
            return
        status = connection.status()
        if connection.reason:
            self._give_up(connection, connection.reason)
        elif status is None and now >= ended + _STATUS_SECONDS:
            self._give_up(connection, "its agent has ended, and ssh has not")
        elif status is not None and self.greeting is not None:
            self._lose(ssh.farewell(status, connection.errors))
        elif status is not None and ssh.was_dropped(connection.errors) and self._tries < _TRIES:
            self._dial_again(connection, now)
        elif status is not None:
            why = ssh.explain(self.host, self._port, status, connection.errors)
            self.failure = f"{self.host}: {why}"

    def _dial_again(self, connection: Connection, now: float) -> None:
        """After a pause that is not the same for all, or they would all be dropped again."""
        connection.close()
        self._connection = None
        pause = min(_MOST_PAUSE, _FIRST_PAUSE * 2 ** (self._tries - 1))
        self._dial_time = now + pause * random.uniform(0.5, 1.5)

    def _give_up(self, connection: Connection, reason: str) -> None:
        connection.kill()
        self._lose(reason)

    def _lose(self, reason: str, status: int = _LOST_STATUS) -> None:
        """Nothing will be heard of the ranks there any more."""
        if self._events is None:  # it had no work yet: there will be no job
            self.failure = self.failure or f"{self.host}: {reason}"
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
