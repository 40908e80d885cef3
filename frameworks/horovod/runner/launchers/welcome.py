"""Waits for the hosts that dial the launcher, and gives them their names in the job."""

import argparse
import os
import time
from collections.abc import Callable, MutableMapping

from horovod.bootstrap import secret
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.rendezvous.rendezvous import derive
from horovod.bootstrap.rendezvous.ways import how_to_make_a_secret

from .. import meeting
from ..command_line import options
from ..ending import ENDING_SIGNALS
from ..hosts import Host
from ..nodes.joined import Joined
from ..nodes.joining import Joining
from ..nodes.loop import Loop
from ..nodes.reach import ReachError

_JOIN_SECONDS = 600.0
_GOODBYE_SECONDS = 1.0
_TELL_SECONDS = (5.0, 30.0)  # for the first time, and then again and again


class Welcome:
    """What a job of hosts that dial in has more than others. ``secret`` is what its ranks share."""

    def __init__(
        self, arguments: argparse.Namespace, loop: Loop, number: str, say: Callable[[str], None]
    ) -> None:
        """``number`` is that of the job. Raises ValueError where the user's options cannot be used."""
        self._arguments = arguments
        self._loop = loop
        self._say = say
        given = common_secret(os.environ)
        self.secret = derive(given, b"job", number.encode())
        host, port = meeting.split(arguments.rendezvous)
        patience = options.host_timeout({**os.environ, **options.environment(arguments)})
        try:
            here = meeting.to_listen_at(host)
            self.joining = Joining(loop, given, here, port, patience, number, say)
        except (OSError, BootstrapError) as error:
            where = f"--rendezvous {arguments.rendezvous}"
            raise ReachError(f"{where}: nobody can listen there: {error}") from None

    def part(self, status: int) -> None:
        """Lets all hosts go, with the status of the job."""
        self.joining.part(status, _GOODBYE_SECONDS)
        self.joining.close()

    def wait(self) -> list[Joined]:
        """The ways to all hosts that join, in the order of their ranks; completes the hosts of the options.

        Raises:
            ReachError: not all have come in time, or a signal has ended the waiting.
        """
        taken: list[int] = []
        self._loop.on_signal = taken.append
        count = self._arguments.joining
        environment = {**os.environ, **options.environment(self._arguments)}
        seconds = options.start_timeout(environment, _JOIN_SECONDS)
        begin = time.monotonic()
        tell = begin + _TELL_SECONDS[0]
        while len(self.joining.arrived) < count:
            now = time.monotonic()
            if now >= begin + seconds:
                raise ReachError(f"{self._missing()} within {seconds:g} s (--start-timeout)")
            if now >= tell:
                self._say(f"{self._missing()} so far")
                tell = now + _TELL_SECONDS[1]
            self._loop.step(min(tell, begin + seconds), [])
            if ending := [number for number in taken if number in ENDING_SIGNALS]:
                raise ReachError("ended by a signal while hosts were waited for", 128 + ending[0])
        self.joining.refuses = "all hosts that the job waits for have joined"
        return self._named(self.joining.arrived[:count])

    def _missing(self) -> str:
        arrived = sorted(way.host for way in self.joining.arrived)
        come = f" ({', '.join(arrived)})" if arrived else ""
        count = self._arguments.joining
        return f"of {count} hosts {len(arrived)} have joined at {self._arguments.rendezvous}{come}"

    def _named(self, joined: list[Joined]) -> list[Joined]:
        order = meeting.in_order([(way.application.place, way.host) for way in joined])
        ways = [joined[at] for at in order]
        hosts, per_node = self._arguments.host_list[: -len(ways)], self._arguments.host_list[-1].slots
        for way in ways:
            slots = way.application.slots
            hosts.append(Host(way.host, per_node if slots is None else slots))
        self._arguments.host_list = hosts
        return ways


def common_secret(environ: MutableMapping[str, str]) -> bytes:
    """What the user has given to all hosts; it stays in no environment. Raises ValueError where there is
    none.
    """
    found = secret.take(environ)
    if found is None:
        raise ValueError(
            "--rendezvous and --join: hosts that dial have to prove that they belong together, and there is "
            f"no secret: {how_to_make_a_secret()}"
        )
    return found
