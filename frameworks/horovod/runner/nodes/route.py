"""How one host is reached: by an ssh of the launcher or of a relay, tried again where that may help."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import remote_shell, replies, ssh
from .channel import ChannelError, Tag
from .connection import Connection, Ssh
from .guardian import Guardian
from .loop import Loop
from .relay import RelayClient
from .ssh_process import SshProcess
from .way import PING_SECONDS

_DOUBT_SECONDS = PING_SECONDS + 1.0  # of silence of a relay, in which those behind it are not judged
_RELAY_SECONDS = 0.5  # in which it may be told that a relay is lost, and not what is behind it
_STATUS_SECONDS = 2.0  # for ssh to end after its agent
_LOGIN_SECONDS = 5.0  # after which a slow login holds up no others
_TRIES = 6
# More are made within so many lengths of a try: who is long in being dropped is long in being let in.
_PATIENCE = 25
_FIRST_PAUSE = 0.25  # between two tries, doubled each time
_MOST_PAUSE = 2.0
_MISSES = 2  # of a relay that has reached nobody: then it is not asked any more
_RETRY_SECONDS = 0.1
_NEVER = float("inf")


class Route:
    """The way to one host that the launcher or a relay dials; see ``way.Way``. Where a relay could not, for
    the reason in ``refusal``, the launcher does.
    """

    addresses = None

    def __init__(self, target: ssh.Target, loop: Loop, guardian: Guardian) -> None:
        self.host = target.host
        self.patience = target.patience
        self.on_frame: Callable[[Tag, bytes], None] = lambda tag, payload: None
        self.on_cut: Callable[[str], None] = lambda reason: None
        self.relay: Route | None = None
        self.refusal = ""
        self.is_greeted = False
        self.heard = 0.0
        self._target = target
        self._loop = loop
        self._guardian = guardian
        self._connection: Connection | None = None
        self._tries = 0
        self._first_dial = 0.0  # of these tries
        self._longest_try = 0.0
        self._dial_time = 0.0
        self._client: RelayClient | None = None  # for what it is a relay of
        self._behind: list[Route] = []
        self._misses = 0

    @property
    def depth(self) -> int:
        """How many logins lead to the host."""
        return 1 if self.relay is None else self.relay.depth + 1

    @property
    def is_dialled(self) -> bool:
        """Whether there is a connection, whatever it has led to."""
        return self._connection is not None

    @property
    def is_gone(self) -> bool:
        """Whether there is no connection, or none any more."""
        return self._connection is None or self._connection.ended is not None

    @property
    def is_able(self) -> bool:
        """Whether the host may be asked to dial others."""
        has_reached = any(each.is_greeted and each.relay is self for each in self._behind)
        return not self.is_gone and (self._misses < _MISSES or has_reached)

    @property
    def delay(self) -> str:
        """Why nothing is heard, as far as it is known."""
        if self._connection is None and self._tries:
            return "its sshd closes connections before the login (MaxStartups in its sshd_config?)"
        if self._connection is not None and self._connection.has_logged_in:
            return "ssh has logged in, but no agent has started: do scripts of the login (~/.bashrc) wait?"
        if self._connection is not None and self._target.shell:
            return remote_shell.silence(self._connection.errors)
        return "" if self.is_dialled else "it was not dialled, because others are slow"

    def wants_to_dial(self, now: float) -> bool:
        """Whether ``dial`` is to be called: for the first time, or again."""
        return self._connection is None and now >= self._dial_time

    def is_logging_in(self, now: float) -> bool:
        """Whether its ssh is one of those that sshd has not let in yet."""
        dialled = self._connection
        if dialled is None or dialled.ended is not None or now > dialled.began + _LOGIN_SECONDS:
            return False
        return not dialled.has_logged_in

    def dial(self, relay: "Route | None") -> None:
        """Starts ssh, and the agent by it. Raises OSError where the launcher cannot start ssh."""
        if self._tries == 0:
            self._first_dial = time.monotonic()
        self._tries += 1
        self.relay = relay
        process: Ssh = (
            SshProcess(ssh.command(self._target), self._loop, self._guardian)
            if relay is None
            else relay._dial_further(self)
        )
        self._connection = Connection(process, self._take)
        self.heard = time.monotonic()

    def send(self, tag: Tag, said: object = None) -> None:
        """Says something to the agent; without effect where there is none."""
        if self._connection is not None:
            self._connection.send(tag, said)

    def inheritance(self, secret: bytes, folder: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """All of it: ssh keeps it from others."""
        return {"secret": secret.hex(), "folder": folder, "environment": environment}

    def next_time(self, now: float) -> float:
        """When ``why_lost`` or ``dial`` has news at the latest, of itself."""
        if self._connection is None:
            return self._dial_time if self._dial_time >= now else _NEVER  # later it waits for its turn
        if self._connection.ended is None:
            return _NEVER
        if self._is_doubted(self._connection.ended, now):
            return now + _RETRY_SECONDS
        is_waiting = self._connection.status() is None
        return self._connection.ended + _STATUS_SECONDS if is_waiting else _NEVER

    def why_lost(self, now: float) -> str:
        """Why it leads nowhere any more, once ssh has told, and soon in any case: what a login has started in
        the background may keep ssh for ever. Empty: it does, or it is not known yet, or it is dialled again.
        """
        connection = self._connection
        if connection is None or connection.ended is None or self._is_doubted(connection.ended, now):
            return ""
        status, errors, reason = connection.status(), connection.errors, connection.reason
        if status is None and not reason and now < connection.ended + _STATUS_SECONDS:
            return ""
        if (
            status is not None
            and not reason
            and not self.is_greeted
            and ssh.was_dropped(self._target, errors)
        ):
            self._longest_try = max(self._longest_try, connection.ended - connection.began)
            if self._is_patient(now):
                self._dial_again(now + self._pause())
                return ""
        why = reason or self._explanation(status, errors)
        if self.relay is not None and not self.is_greeted:
            self._leave_to_launcher(self.relay, why, now)
            return ""
        if reason or status is None:
            connection.kill()
        return why

    def give_up(self) -> None:
        """Ends ssh, which leads to an agent that does not answer."""
        if self._connection is not None:
            self._connection.kill()

    def is_in_doubt(self, now: float) -> bool:
        """Whether it may be lost, so that nothing can be said of those behind it."""
        if self.is_gone or now > self.heard + _DOUBT_SECONDS:
            return True
        return self.relay is not None and self.relay.is_in_doubt(now)

    def cut_those_behind(self) -> None:
        """What was reached by way of the host is lost with it, and after it."""
        behind, self._behind = self._behind, []
        for route in behind:
            if route.relay is self and route._connection is not None:  # it is not reached another way by now
                route._connection.kill()
                route.on_cut(f"it was reached by way of {self.host}, which is lost")
                route.cut_those_behind()

    def close(self) -> None:
        """Gives everything back. An agent that has not left loses ssh, and ends by itself."""
        if self._connection is not None:
            self._connection.close()

    def _dial_further(self, route: "Route") -> Ssh:
        """Has the agent of this host start the ssh to another one."""
        assert self._connection is not None
        if self._client is None:
            self._client = RelayClient(self._connection)
        self._behind.append(route)
        return self._client.dial(route._target)

    def _take(self, tag: Tag, payload: bytes) -> None:
        self.heard = time.monotonic()
        if tag not in (Tag.FROM_SSH, Tag.SSH_ENDED):
            self.on_frame(tag, payload)
        elif self._client is None:
            raise ChannelError(f"its agent sent a {tag.name}, and runs no ssh")
        elif tag == Tag.FROM_SSH:
            self._client.take(*replies.relayed(payload))
        else:
            self._client.take_status(*replies.ssh_ended(payload))

    def _is_doubted(self, ended: float, now: float) -> bool:
        """Whether its end may be that of its relay."""
        if self.relay is None or not self.is_greeted:
            return False
        return now < ended + _RELAY_SECONDS or self.relay.is_in_doubt(now)

    def _is_patient(self, now: float) -> bool:
        return self._tries < _TRIES or now < self._first_dial + _PATIENCE * self._longest_try

    def _pause(self) -> float:
        """Not the same for all, or they would all be dropped again."""
        return min(_MOST_PAUSE, _FIRST_PAUSE * 2 ** (self._tries - 1)) * random.uniform(0.5, 1.5)

    def _dial_again(self, when: float) -> None:
        assert self._connection is not None
        self._connection.close()
        self._connection = self.relay = None
        self._dial_time = when

    def _leave_to_launcher(self, relay: "Route", why: str, now: float) -> None:
        """What a relay cannot reach, the launcher may: it has the user's keys, and knows other names."""
        relay._misses += 1
        self.refusal = f"{relay.host} could not reach {self.host}: {why}"
        self._dial_again(now)
        self._tries = 0

    def _explanation(self, status: int | None, errors: str) -> str:
        if status is None:
            return "its agent has ended, and ssh has not"
        if not self.is_greeted:
            return ssh.explain(self._target, status, errors)
        where = "here" if self.relay is None else f"on {self.relay.host}"
        return ssh.farewell(self._target, status, errors, where)
