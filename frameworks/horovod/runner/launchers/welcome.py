"""Waits for the hosts that dial the launcher, and gives them their names in the job."""

import os
import time
from collections.abc import Callable, MutableMapping

from horovod.bootstrap import secret
from horovod.bootstrap.errors import BootstrapError, PortTakenError
from horovod.bootstrap.rendezvous.rendezvous import derive
from horovod.bootstrap.rendezvous.ways import how_to_make_a_secret

from .. import meeting, timeouts
from ..ending import ENDING_SIGNALS
from ..hosts import Host
from ..job import Job
from ..nodes.joined import Joined
from ..nodes.joining import Joining
from ..nodes.loop import Loop
from ..nodes.reach import ReachError

_GOODBYE_SECONDS = 1.0
_TELL_SECONDS = (5.0, 30.0)  # for the first time, and then again and again


class Welcome:
    """What a job of hosts that dial in has more than others. ``secret`` is what its ranks share."""

    def __init__(self, job: Job, loop: Loop, number: str, say: Callable[[str], None]) -> None:
        """``number`` is that of the job. Raises ValueError where the user's options cannot be used."""
        self._job = job
        self._where = job.reach.rendezvous or ""
        self._loop = loop
        self._say = say
        given = common_secret(os.environ)
        self.secret = derive(given, b"job", number.encode())
        host, port = meeting.split(self._where)
        try:
            here = meeting.to_listen_at(host)
            self.joining = Joining(loop, given, here, port, job.reach.lost_seconds, number, say)
        except PortTakenError:
            raise ReachError(
                f"--rendezvous {self._where}: somebody listens at port {port} already. If it is the launcher "
                "of this job, give this one the number of another host, as --node-rank 1; else choose "
                "another port"
            ) from None
        except (OSError, BootstrapError) as error:
            raise ReachError(f"--rendezvous {self._where}: nobody can listen there: {error}") from None

    def part(self, status: int) -> None:
        """Lets all hosts go, with the status of the job."""
        self.joining.part(status, _GOODBYE_SECONDS)
        self.joining.close()

    def wait(self) -> tuple[list[Joined], list[Host]]:
        """The ways to all hosts that join, in the order of their ranks, and the hosts of the job.

        Raises:
            ReachError: not all have come in time, or a signal has ended the waiting.
        """
        taken: list[int] = []
        self._loop.on_signal = taken.append
        count = self._job.reach.joining
        seconds = self._job.reach.start_seconds or timeouts.JOIN_SECONDS
        begin = time.monotonic()
        tell = begin + _TELL_SECONDS[0]
        while len(self.joining.here) < count:
            now = time.monotonic()
            if now >= begin + seconds:
                missing, come = self._missing()
                late = f"did not dial {self._where} within {seconds:g} s (--start-timeout)"
                raise ReachError(f"{missing} {late}{come}")
            if now >= tell:
                missing, come = self._missing()
                self._say(f"waiting for {missing} to dial {self._where}{come}")
                tell = now + _TELL_SECONDS[1]
            self._loop.step(min(tell, begin + seconds), [])
            if ending := [number for number in taken if number in ENDING_SIGNALS]:
                raise ReachError("ended by a signal while hosts were waited for", 128 + ending[0])
        self.joining.refuses = "all hosts that the job waits for have joined"
        return self._named(self.joining.here[:count])

    def _missing(self) -> tuple[str, str]:
        """How many have not come, and who has, in words."""
        arrived = sorted(way.host for way in self.joining.here)
        missing = self._job.reach.joining - len(arrived)
        come = f"; here: {', '.join(arrived)}" if arrived else ""
        return f"{missing} more host{'s' * (missing > 1)}", come

    def _named(self, joined: list[Joined]) -> tuple[list[Joined], list[Host]]:
        order = meeting.in_order([(way.application.place, way.host) for way in joined])
        ways = [joined[at] for at in order]
        if not ways:
            return ways, list(self._job.hosts)
        hosts, per_node = list(self._job.hosts[: -len(ways)]), self._job.hosts[-1].slots
        for way in ways:
            slots = way.application.slots
            hosts.append(Host(way.host, per_node if slots is None else slots))
        return ways, hosts


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
