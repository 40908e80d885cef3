"""The agent: the launcher's hand on another host. Started by ssh, it starts, watches and ends that host's
ranks, as the launcher does with its own, and ends them when it loses the launcher.

What is read from standard input comes from whoever has logged in by ssh, the user. Output goes back only as
far as the launcher has room for it, so that news of deaths never waits behind it.
"""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from horovod.bootstrap import secret
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.text import escaped
from horovod.elastic import asking

from .. import limits
from ..ending import ENDING_SIGNALS, Exit, signal_name
from ..hosts import Placement
from ..signals import SignalQueue
from . import machine
from .carrier import Carrier, Pipes
from .channel import Channel, Tag, content
from .children import Children
from .dial_in import DialIn
from .guardian import Guardian
from .local import LocalNode
from .loop import Loop
from .node import STREAMS, Work
from .notice import Notice
from .rank_process import CommandError, runnable
from .relay import RelayServer

ROOM_BYTES = 1 << 20
_LAST_SECONDS = 2.0
_GOODBYE_SECONDS = 0.2  # of an agent that has been ended, whose ranks still run
_NOT_RUN_STATUS = 1


class Agent:
    """One job's agent. It receives the events of its node, and tells the launcher."""

    def __init__(self, loop: Loop, carrier: Carrier) -> None:
        self._loop = loop
        self._carrier = carrier
        self._status = 0
        self._node: LocalNode | None = None
        self._guardian: Guardian | None = None
        self._offer: secret.Offer | None = None
        self._room = dict.fromkeys(STREAMS, ROOM_BYTES)
        self._is_done = False
        self._is_orphan = False
        self._has_finished = False
        self._is_alone = False  # the launcher has gone, or its ssh has
        self._marker = ""
        self._heard = time.monotonic()
        self._notice = Notice(None, "")
        self._asking: list[int] = []  # signals by which its workers are to leave first, in an elastic job
        self._leaving: int | None = None  # that signal, once it has come
        loop.on_signal = self._on_signal
        self._channel = Channel(carrier.write, self._on_frame, self._on_end)
        carrier.on_bytes = self._channel.feed
        self._relay = RelayServer(loop, self._channel, carrier)

    @property
    def has_work(self) -> bool:
        """Whether the launcher has said what to run here."""
        return self._node is not None

    def run(self) -> int:
        """Until the launcher has no more use for it, or is gone; then the guard ends the job here."""
        while not (self._is_done or self._is_orphan):
            self._step(time.monotonic() + 1.0)
            self._tell_finished()
            if self._notice.look(time.monotonic()) and self._leaving is None:  # nothing calls it back
                self._channel.send(Tag.NOTICED, int(self._notice.is_given))
            if self._leaving is not None and self._node is not None and not self._node.has_ranks:
                self._say_the_last(time.monotonic() + _LAST_SECONDS)  # also how its workers have left
                self._is_orphan, self._status = True, 128 + self._leaving
            if time.monotonic() > self._heard + self._carrier.patience and not self._carrier.is_paused:
                self._end_on_silence()
        if self._is_orphan:
            self._say_the_last(time.monotonic() + _GOODBYE_SECONDS)
            self._carrier.close()
            return self._status or _NOT_RUN_STATUS
        self._say_the_last(time.monotonic() + _LAST_SECONDS)
        self._relay.close()
        if self._guardian is not None:
            self._loop.children.kill_strays()
            self._guardian.dismiss()
        self._carrier.close()
        return self._status

    def _step(self, until: float) -> None:
        until = min(until, self._carrier.tend(time.monotonic()))
        self._loop.step(until, [self._node] if self._node is not None else [])
        self._relay.tend()

    def _say_the_last(self, end: float) -> None:
        """Also what those behind this host have to say, and to be told."""
        while time.monotonic() < end and (self._carrier.unsent or not self._relay.is_idle):
            if self._is_alone:
                return
            self._step(end)

    def started(self, rank: int, pid: int) -> None:
        """A rank runs."""
        self._channel.send(Tag.STARTED, [rank, pid])

    def has_room(self, rank: int, stream: str) -> bool:
        """Whether the launcher takes output."""
        return self._room[stream] > 0

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """The next bytes of a stream; no bytes: its end."""
        self._room[stream] -= len(data)
        self._channel.send_bytes(Tag.OUTPUT, rank, STREAMS.index(stream), data)

    def ended(self, exits: Sequence[Exit]) -> None:
        """How ranks ended."""
        self._channel.send(Tag.ENDED, [[each.rank, each.code, each.killer, each.notes] for each in exits])

    def _on_frame(self, tag: Tag, payload: bytes) -> None:
        self._heard = time.monotonic()
        if tag == Tag.TO_SSH:
            self._relay.write(payload)
            return
        said = content(payload)
        if tag == Tag.WORK and self._node is None:
            self._start(said)
        elif tag == Tag.ASK:
            self._marker = said["marker"]
            if said["wdir"] is not None and not os.path.isdir(said["wdir"]):
                refusal = f"--wdir {said['wdir']}: there is no such folder"
                self._channel.send(Tag.REFUSED, [refusal, _NOT_RUN_STATUS])
            else:
                self._channel.send(Tag.HELLO, _hello(said["ports"], said["launcher"]))
        elif tag == Tag.DIAL:
            self._relay.dial(said, self._guard)
        elif tag == Tag.END_SSH:
            self._relay.end(said)
        elif tag == Tag.PING:
            self._channel.send(Tag.PONG)
        elif tag == Tag.ROOM:
            self._room[said["stream"]] += int(said["bytes"])
        elif tag == Tag.DONE:
            self._is_done, self._status = True, int(said or 0)
        elif self._node is not None:
            self._command(self._node, tag, said)

    def _command(self, node: LocalNode, tag: Tag, said: Any) -> None:
        if tag == Tag.SIGNAL:
            self._carrier.is_paused = said["pauses"]
            node.signal(int(said["number"]))
        elif tag == Tag.START_WORKER:
            self._start_worker(node, int(said["worker"]), said["variables"], int(said["slots"]))
        elif tag == Tag.SIGNAL_ONE:
            node.signal_one(int(said["worker"]), int(said["number"]))
        elif tag == Tag.FIND_STOPPED:
            node.find_stopped()
            self._channel.send(Tag.STOPPED, node.stopped)
        elif tag == Tag.SHOW_STACKS:
            node.show_stacks(said["ranks"])
        elif tag == Tag.FINISH:
            node.finish()
        elif tag == Tag.ABANDON:
            node.abandon()

    def _start(self, said: dict[str, Any]) -> None:
        """Starts the ranks of this host. What does not work is the launcher's to tell."""
        try:
            load = limits.Load(len(said["placements"]))
            limits.make_room(load)
            if refusal := limits.refusal(load):
                raise CommandError(refusal, _NOT_RUN_STATUS)
            self._offer = secret.offer(self._carrier.job_secret(said))
            guardian = self._guard()
            self._notice = Notice(said["notice"], said["host"])
            self._node = LocalNode(said["host"], self._loop.selector, self._loop.children, guardian, self)
            environment = {**os.environ, **said["environment"], **self._offer.variables}
            if said["orphan_seconds"] is not None:
                self._hand_over(asking.chosen_signal(environment))
            if os.path.isdir(said["folder"]):
                os.chdir(said["folder"])
            os.environ["PATH"] = environment.get("PATH", os.defpath)  # in which the command is looked for
            placements = [Placement(*fields) for fields in said["placements"]]
            orphan = said["orphan_seconds"]
            command, size = runnable(said["command"], said["wdir"] or ""), said["size"]
            shared = {name: said[name] for name in ("bind_to", "gpus_per_rank", "wdir")}
            self._node.start(Work(command, environment, placements, size, orphan_seconds=orphan, **shared))
        except CommandError as error:
            self._channel.send(Tag.REFUSED, [str(error), error.status])
        except ValueError as error:  # of a variable of this host, which the launcher does not see
            self._channel.send(Tag.REFUSED, [str(error), _NOT_RUN_STATUS])
        except OSError as error:
            text = f"{error}{limits.limit_behind(error, load)}"
            self._channel.send(Tag.REFUSED, [text, _NOT_RUN_STATUS])

    def _start_worker(self, node: LocalNode, worker: int, variables: dict[str, str], slots: int) -> None:
        """One more. Where the system refuses it, it has failed like one that has started."""
        try:
            node.start_worker(worker, variables, slots)
        except OSError as error:
            for stream in STREAMS:
                self.output(worker, stream, b"")
            text = f"it could not be started: {error}{limits.limit_behind(error, limits.Load(1))}"
            self._channel.send(Tag.ENDED, [[worker, _NOT_RUN_STATUS, None, [text]]])

    def _guard(self) -> Guardian:
        """The one of all that runs here."""
        if self._guardian is None:
            self._guardian = Guardian(self._marker, self._loop.children, self._tell)
        return self._guardian

    def _tell(self, text: str) -> None:
        """To who has started this by hand, and to who reads the output of the job."""
        if self._node is not None:
            self._node.say(f"warning: {text}", most=1)
        tell(text)

    def _tell_finished(self) -> None:
        if self._node is not None and self._node.is_finished and not self._has_finished:
            self._has_finished = True
            self._channel.send(Tag.FINISHED)

    def _end_on_silence(self) -> None:
        """Says why to whoever hears of it after all: ssh, and the readers of the ranks' output."""
        self._is_orphan = True
        text = f"nothing was heard of horovodrun for {self._carrier.patience:g} s: was it stopped?"
        print(text, file=sys.stderr, flush=True)
        if self._node is not None:
            self._node.say(f"{text} The ranks of {self._node.host} are ended")

    def _hand_over(self, chosen: int | None) -> None:
        """On SIGTERM, and on the signal that the user has chosen, if there is one."""
        self._asking = [signal.SIGTERM]
        if chosen is not None:
            self._asking.append(chosen)
            self._loop.catch(chosen)

    def _on_signal(self, number: int) -> None:
        if number in self._asking and self._leaving is None and not self._is_alone:
            self._leaving = number
            self._channel.send(Tag.NOTICED, 1)
        elif number in ENDING_SIGNALS:
            self._is_orphan, self._status = True, 128 + number
            self._channel.send(
                Tag.REFUSED, [f"its agent was ended by {signal_name(number)}", _NOT_RUN_STATUS]
            )

    def _on_end(self, reason: str) -> None:
        if self._carrier.reason and self._node is not None:
            self._node.say(f"{self._carrier.reason}. The ranks of {self._node.host} are ended")
        self._is_alone = True
        self._is_orphan = not self._is_done


def _hello(ports: Sequence[int] | None, launcher: Sequence[str]) -> dict[str, object]:
    """What the launcher has to know before it can say what to do; ``ports``: the first and the last one of
    those that the user allows; ``launcher``: the addresses of its host.
    """
    connection = os.environ.get("SSH_CONNECTION", "").split()
    routes = filter(None, map(interfaces.route_to, launcher))
    try:
        port = endpoints.free_port(None if ports is None else range(ports[0], ports[1] + 1))
    except (OSError, BootstrapError):
        port = None
    return {
        "launcher": connection[0] if connection else None,  # its address, as this host sees it
        "address": connection[2] if len(connection) > 2 else next(routes, None),  # at which ssh has come
        "port": port,
        "machine": machine.identity(),
    }


def main() -> None:
    """Serves the launcher at the other end of standard input and output."""
    if not _has_other_end():
        complain(
            "nobody can be heard on its standard input: a command in place of ssh has to pass that on, as "
            "docker exec -i and kubectl exec -i do; to join a job, give --join HOST:PORT"
        )
        os._exit(_NOT_RUN_STATUS)
    loop = Loop(SignalQueue(), Children())
    # The launcher's messages keep 0 and 1 to themselves.
    sys.stdin = open(os.devnull, encoding="utf-8")
    status = Agent(loop, Pipes(loop)).run()
    os._exit(status)  # without ``dismiss``, the guard ends what still runs


def _has_other_end() -> bool:
    """Whether standard input is one that the loop can wait for: no file, and not /dev/null."""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
    except OSError:
        return False
    return True


def join(dial: Callable[[Loop], DialIn]) -> int:
    """Serves the launcher that is dialled; see ``agent.join`` of the runner. Afterwards the process has to
    end by ``os._exit``, as in ``main``.
    """
    while True:
        signals = SignalQueue()
        loop = Loop(signals, Children())
        carrier = dial(loop)
        agent = Agent(loop, carrier)
        status = agent.run()
        if agent.has_work or not carrier.is_forgotten:
            break
        signals.close()  # the launcher has been started anew: so is the agent
        loop.close()
    if carrier.reason:
        complain(carrier.reason)
    return status


def tell(text: str) -> None:
    """A line for people, of an agent that somebody has started by hand."""
    print(f"horovodrun-agent: {escaped(text)}", file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """Says why it cannot go on."""
    tell(f"error: {text}")
