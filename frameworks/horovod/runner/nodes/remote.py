"""The ranks of another host, by an agent that ssh has started there: an ssh of this host, or of a relay."""

import re
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, astuple, replace

from horovod.bootstrap.network import interfaces

from ..ending import Exit
from . import replies
from .channel import ChannelError, Tag
from .node import STREAMS, Events, Work
from .replies import Greeting
from .way import PING_SECONDS, Way

_LOST_STATUS = 1
_NEVER = float("inf")
# Of this host alone, so that the ranks there have their own.
_OWN = re.compile(
    "HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|MAIL|DISPLAY|TMPDIR|TMP|TEMP|_|SHLVL|XAUTHORITY|"
    "DBUS_SESSION_BUS_ADDRESS|(SSH|XDG|SUDO)_.*|BASH_FUNC_.*|HOROVOD_SECRET_.*|"
    "HOROVOD_ELASTIC_(ADDR|WORKER)|SLURMD_.*|"
    "SLURM_(NODEID|PROCID|LOCALID|TASK_PID|GTIDS|CPUS_ON_NODE|GPUS_ON_NODE|TOPOLOGY_ADDR|STEP_.*)"
)


def _own_addresses() -> list[str]:
    """Of this host, as others may know it."""
    found = [address.host for address in interfaces.addresses()]
    return [host for host in found if not interfaces.is_loopback(host)]


class RemoteNode:
    """The node of another host; see ``node.Node``. ``greeting`` is there when its agent is; ``failure`` says
    why there is none, or why its work was refused, with ``failure_status`` for the job. ``on_notice`` is
    called when the host is about to be taken away (True), or is not any more.
    """

    def __init__(self, way: Way, marker: str, ports: range | None = None, wdir: str | None = None) -> None:
        """``way`` leads to the agent there; ``marker`` stands in the environment of all processes of the job
        there; ``ports`` are those that the user allows the job; ``wdir`` is a folder that has to be there.
        """
        self.host = way.host
        self.stopped: list[int] = []
        self.is_finished = False
        self.greeting: Greeting | None = None
        self.failure: str | None = None
        self.failure_status = _LOST_STATUS
        self.on_notice: Callable[[bool], None] = lambda is_given: None
        self.route = way
        way.on_frame, way.on_cut = self._on_frame, self._on_cut
        self._marker = marker
        self._ports = ports
        self._wdir = wdir
        self._events: Events | None = None
        self._alive: set[int] = set()
        self._open: set[tuple[int, str]] = set()
        self._owed: dict[tuple[int, str], int] = {}  # bytes of output that found no room, by stream
        self._is_lost = False
        self._is_noticed = False
        self._tended = self._pinged = 0.0

    def wants_to_dial(self, now: float) -> bool:
        """Whether ``dial`` is to be called."""
        return self.failure is None and self.route.wants_to_dial(now)

    def dial(self, relay: Way | None) -> None:
        """Brings the agent up, itself or by way of ``relay``, and asks it who it is. Raises OSError where
        what leads there cannot be started here.
        """
        self.route.dial(relay)
        self._tended = self._pinged = time.monotonic()
        ports = None if self._ports is None else [self._ports[0], self._ports[-1]]
        question = {"ports": ports, "marker": self._marker, "launcher": _own_addresses(), "wdir": self._wdir}
        self._send(Tag.ASK, question)

    def start(
        self,
        work: Work,
        secret: bytes,
        folder: str,
        environment: Mapping[str, str],
        events: Events,
    ) -> None:
        """Has the agent start the ranks; how they fare, ``events`` will tell.

        Args:
            work: what to run, with variables that this launch sets.
            secret: the job's.
            folder: where they are started, if there is such a folder.
            environment: the launcher's own, of which ranks get what is not this host's alone.
            events: told what happens.
        """
        self._events = events
        self._alive = {place.rank for place in work.placements}
        self._open = {(rank, stream) for rank in self._alive for stream in STREAMS}
        passed = {name: value for name, value in environment.items() if not _OWN.fullmatch(name)}
        own = self.route.inheritance(secret, folder, passed)
        said = {
            **asdict(work),
            **own,
            "placements": [astuple(place) for place in work.placements],
            "environment": {**own["environment"], **work.environment},
            "host": self.host,
        }
        self._send(Tag.WORK, said)

    def start_worker(self, number: int, variables: Mapping[str, str], slots: int) -> None:
        """Has the agent start one process more; how it fares, the events will tell. Raises OSError where the
        agent is gone.
        """
        if self._is_lost:
            raise OSError(f"the agent on {self.host} is gone")
        self._alive.add(number)
        self._open |= {(number, stream) for stream in STREAMS}
        self._send(Tag.START_WORKER, {"worker": number, "variables": dict(variables), "slots": slots})

    def signal_one(self, rank: int, number: int) -> None:
        """Sends a signal to one rank there, if it lives."""
        self._send(Tag.SIGNAL_ONE, {"worker": rank, "number": int(number)})

    def signal(self, number: int) -> None:
        """Sends a signal to the ranks that live there."""
        said = {"number": int(number), "pauses": number == signal.SIGSTOP}
        self._send(Tag.SIGNAL, said)

    def show_stacks(self, ranks: Collection[int] | None = None) -> None:
        """Has the ranks there write on their stderr where they are."""
        self._send(Tag.SHOW_STACKS, {"ranks": None if ranks is None else sorted(ranks)})

    def find_stopped(self) -> None:
        """Asks which ranks are stopped; the answer comes soon."""
        self._send(Tag.FIND_STOPPED)

    def tend(self, now: float) -> float:
        """Gives room for output, and watches whether the agent answers."""
        for key in [key for key in self._owed if self._events is not None and self._events.has_room(*key)]:
            self._give_room(key[1], self._owed.pop(key))
        if self.route.is_gone:
            return now if self._tell_end(now) else self._next_time(now)
        if now > self._tended + PING_SECONDS + 1.0:  # this process has not run: it was stopped, or starved
            self.route.heard = now
        if self.route.relay is not None and self.route.relay.is_in_doubt(now):  # it is judged before this one
            self.route.heard = now
        self._tended = now
        pause = min(PING_SECONDS, self.route.patience / 4)
        if now >= self._pinged + pause:
            self._pinged = now
            if self.greeting is not None:
                self._send(Tag.PING)
        # Before its greeting it may still be starting: how long is for --start-timeout to say.
        if self.greeting is not None and now >= self.route.heard + self.route.patience:
            self.route.give_up()
            self._lose(f"its agent has not answered for {self.route.patience:g} s")
            self.route.cut_those_behind()
        return self._pinged + pause

    def finish(self) -> None:
        """Ends what the ranks there have left behind."""
        self._send(Tag.FINISH)
        self.is_finished |= self.route.is_gone or (not self._open and self._events is None)

    def abandon(self) -> None:
        """Ends the streams; what the host still has of them is lost, unless it is on its way."""
        self._send(Tag.ABANDON)
        self._end_streams()

    def leave(self, status: int) -> None:
        """Lets the agent go, with the status of the job; ``has_left`` tells when it is gone."""
        self._send(Tag.DONE, status)

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be done there any more."""
        return self._is_lost

    @property
    def has_left(self) -> bool:
        """Whether there is no agent to be waited for."""
        return self.greeting is None or self.route.is_gone

    def close(self) -> None:
        """Gives everything back. An agent that has not left loses ssh, and ends by itself."""
        self.route.close()

    def _send(self, tag: Tag, said: object = None) -> None:
        self.route.send(tag, said)

    def _on_frame(self, tag: Tag, payload: bytes) -> None:
        if tag == Tag.OUTPUT:
            self._take_output(*replies.written(payload))
        elif tag == Tag.HELLO:
            self._greet(replies.greeting(payload))
        elif tag == Tag.STARTED:
            self._take_start(*replies.started(payload))
        elif tag == Tag.REFUSED:
            reason, status = replies.refused(payload)
            self.failure, self.failure_status = f"{self.host}: {reason}", status
            self._lose(reason, status)
        elif tag == Tag.ENDED:
            self._take_exits(replies.exits(payload))
        elif tag == Tag.STOPPED:
            self.stopped = [rank for rank in replies.stopped(payload) if rank in self._alive]
        elif tag == Tag.FINISHED:
            self.is_finished = True
        elif tag == Tag.NOTICED:
            self._notice(replies.noticed(payload))
        elif tag != Tag.PONG:
            raise ChannelError(f"its agent sent a {tag.name}, which is for agents")

    def _greet(self, greeting: Greeting) -> None:
        if self.route.addresses is not None:
            own, other = self.route.addresses
            greeting = replace(greeting, launcher=own, address=other)
        elif self.route.relay is not None and greeting.address is not None:  # its ssh has come from the relay
            greeting = replace(greeting, launcher=interfaces.route_to(greeting.address))
        self.greeting, self.route.is_greeted = greeting, True

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

    def _notice(self, is_given: bool) -> None:
        if is_given != self._is_noticed:
            self._is_noticed = is_given
            self.on_notice(is_given)

    def _tell_end(self, now: float) -> bool:
        """Whether there is news, for which nobody waits any more."""
        if self._is_failed:
            self.route.cut_those_behind()
        elif why := self.route.why_lost(now):
            self._lose(why)
            self.route.cut_those_behind()
            return True
        return False

    def _next_time(self, now: float) -> float:
        return _NEVER if self._is_failed else self.route.next_time(now)

    @property
    def _is_failed(self) -> bool:
        return self._is_lost or (self._events is None and self.failure is not None)

    def _on_cut(self, reason: str) -> None:
        if self._events is not None and not self._is_lost:  # else the relay has told why there is no job
            self._lose(reason)

    def _lose(self, reason: str, status: int = _LOST_STATUS) -> None:
        """Nothing will be heard of the ranks there any more."""
        if self._events is None:  # it had no work yet: there will be no job
            self.failure = self.failure or f"{self.host}: {reason}"
        lost, self._alive = sorted(self._alive), set()
        self.is_finished = self._is_lost = True
        self._end_streams()
        self._notice(False)  # what comes back under this name is another host
        if lost and self._events is not None:
            self._events.ended([Exit(rank, status, lost=reason) for rank in lost])

    def _end_streams(self) -> None:
        streams, self._open = sorted(self._open), set()
        self._owed.clear()
        for rank, stream in streams:
            if self._events is not None:
                self._events.output(rank, stream, b"")
