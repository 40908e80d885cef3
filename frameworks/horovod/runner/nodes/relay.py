"""An ssh that runs on another host: the agent there runs it for the launcher, and passes on its bytes.

So a host is reached by way of another one, its relay, and the launcher talks to its agent as to any other: a
relay sees bytes, and reads none of them. How much output waits in it is bounded by the room that the launcher
gives each host, and it reads no more while its own channel is full, so that its own news never wait for long.
What the launcher has for a host is bounded by the launcher: its work, and frames of a few bytes.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from . import ssh
from .carrier import Carrier
from .channel import Channel, Tag, stream_bytes
from .connection import Connection
from .guardian import Guardian
from .loop import Loop
from .node import STREAMS
from .ssh_process import SshProcess

_FRAME_BYTES = 1 << 18
_MOST_UNSENT = 1 << 18
_NOT_STARTED = 127  # the status of what could not be started, as in a shell
_OUTPUT, _ERRORS = range(len(STREAMS))


class RelayedSsh:
    """The launcher's end of one; see ``connection.Ssh``."""

    def __init__(self, number: int, client: "RelayClient") -> None:
        self.on_output: Callable[[bytes], object] = _forget
        self.on_errors: Callable[[bytes], object] = _forget
        self._number = number
        self._client = client
        self._status: int | None = None

    def write(self, data: bytes) -> None:
        """For its stdin; does not wait."""
        self._client.write(self._number, data)

    def status(self) -> int | None:
        """How it has ended, and then all of its stderr has come; None: it runs."""
        return self._status

    def kill(self) -> None:
        """Ends it at once; what it still has to say is lost."""
        self._client.end(self._number, is_killed=True)

    def close(self) -> None:
        """Gives everything back. Idempotent."""
        self._client.end(self._number, is_killed=False)

    def take(self, stream: int, data: bytes) -> None:
        """Bytes of it have come."""
        (self.on_output if stream == _OUTPUT else self.on_errors)(data)

    def take_status(self, status: int) -> None:
        """It has ended."""
        self._status = status


class RelayClient:
    """What the launcher has running on one relay; ``connection`` leads to the agent there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._running: dict[int, RelayedSsh] = {}
        self._count = 0

    def dial(self, target: ssh.Target) -> RelayedSsh:
        """Has ssh started there."""
        self._count += 1
        process = self._running[self._count] = RelayedSsh(self._count, self)
        self._connection.send(Tag.DIAL, {"number": self._count, "target": asdict(target)})
        return process

    def write(self, number: int, data: bytes) -> None:
        """For the stdin of one."""
        for begin in range(0, len(data), _FRAME_BYTES):
            self._connection.send_bytes(Tag.TO_SSH, number, data[begin : begin + _FRAME_BYTES])

    def end(self, number: int, is_killed: bool) -> None:
        """Ends one, if it runs; nothing is heard of it any more."""
        if self._running.pop(number, None) is not None:
            self._connection.send(Tag.END_SSH, {"number": number, "is_killed": is_killed})

    def take(self, number: int, stream: int, data: bytes) -> None:
        """Bytes of one have come."""
        if number in self._running:
            self._running[number].take(stream, data)

    def take_status(self, number: int, status: int) -> None:
        """One has ended."""
        if number in self._running:
            self._running[number].take_status(status)


class RelayServer:
    """The agent's end: every ssh that it runs for the launcher. ``output`` carries ``channel``."""

    def __init__(self, loop: Loop, channel: Channel, output: Carrier) -> None:
        self._loop = loop
        self._channel = channel
        self._output = output
        self._running: dict[int, SshProcess] = {}

    @property
    def is_idle(self) -> bool:
        """Whether none runs."""
        return not self._running

    def dial(self, said: dict[str, Any], guard: Callable[[], Guardian]) -> None:
        """Starts one. ``guard`` ends it when this process dies."""
        number = int(said["number"])
        try:
            words = ssh.command(ssh.Target(**said["target"]), is_relayed=True)
            process = SshProcess(words, self._loop, guard())
        except OSError as error:
            self._send(number, _ERRORS, f"{error}\n".encode(errors="replace"))
            self._send(number, _OUTPUT, b"")
            self._channel.send(Tag.SSH_ENDED, [number, _NOT_STARTED])
            return
        self._running[number] = process
        process.on_output = lambda data: self._pass_on(process, number, _OUTPUT, data)
        process.on_errors = lambda data: self._pass_on(process, number, _ERRORS, data)

    def write(self, payload: bytes) -> None:
        """Takes a TO_SSH."""
        number, _, data = stream_bytes(payload)
        if number in self._running:
            self._running[number].write(data)

    def end(self, said: dict[str, Any]) -> None:
        """Takes an END_SSH; ``tend`` tells when it has ended."""
        process = self._running.get(int(said["number"]))
        if process is not None:
            (process.kill if said["is_killed"] else process.close)()

    def tend(self) -> None:
        """To be called after every event: tells of those that have ended, and reads while there is room."""
        for number, process in list(self._running.items()):
            process.hold(self._is_full)
            if process.has_said_all and (status := process.status()) is not None:
                del self._running[number]
                process.close()
                self._channel.send(Tag.SSH_ENDED, [number, status])

    def close(self) -> None:
        """Ends all of them."""
        for process in self._running.values():
            process.close()

    @property
    def _is_full(self) -> bool:
        return self._output.unsent > _MOST_UNSENT

    def _pass_on(self, process: SshProcess, number: int, stream: int, data: bytes) -> None:
        self._send(number, stream, data)
        if self._is_full:
            process.hold(True)

    def _send(self, number: int, stream: int, data: bytes) -> None:
        self._channel.send_bytes(Tag.FROM_SSH, number, stream, data)


def _forget(data: bytes) -> None:
    """Nobody has asked for it yet."""
