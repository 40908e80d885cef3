"""A process that an engine has started, as a worker of a job.

An agent starts its workers as processes of their own. Where the engine's process has to be the worker itself,
as one of Ray Train must, which alone can report to its trainer, an agent beside it starts this program. It
stands in for that process: it hands on which worker it is and that it is asked to leave, and ends as it does.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping

from horovod.bootstrap.network import endpoints
from horovod.elastic import preemption

from . import engines

COMMAND = [sys.executable, "-m", "horovod.runner.stand_in"]
"""What the launcher of such a job runs."""

_VARIABLE = "HVD_STAND_IN"
_LOOK_SECONDS, _CONNECT_SECONDS = 0.2, 10.0
_LEAVE = b"\1"


class Represented:
    """The process of the engine, which is a host of the job with one slot.

    Args:
        address: of the launcher.
        name: of this host in the job.
        secret: of the job.
        variables: for its environment.
    """

    def __init__(self, address: str, name: str, secret: bytes, variables: Mapping[str, str]) -> None:
        self._listener, own_address = endpoints.listen("unix")
        self._connection: socket.socket | None = None
        self._has_left = False
        environ = {**os.environ, **variables, _VARIABLE: own_address}
        self._agent = engines.AgentProcess(address, name, 1, secret, environ).process

    def join(self) -> bool:
        """Waits until the job has a place for this process, which may call ``hvd.init()`` then. False: it has
        ended without it. Raises RuntimeError where there is no such job.
        """
        while self._connection is None:
            if select.select([self._listener], [], [], _LOOK_SECONDS)[0]:
                self._connection = endpoints.accept(self._listener)
            elif (status := self._agent.poll()) is not None:
                if status:
                    raise RuntimeError(f"this process has no place in the job: its agent has status {status}")
                return False
        self._connection.setblocking(True)
        with self._connection.makefile("rb", buffering=0) as lines:
            os.environ.update(json.loads(lines.readline()))
        threading.Thread(target=self._hear, name="hvd-stand-in", daemon=True).start()
        return True

    def hand_over(self) -> None:
        """The host is about to go: this worker leaves at its next commit."""
        self._agent.terminate()

    def leave(self, status: int) -> None:
        """This worker has come to its end."""
        self._has_left = True
        if self._connection is not None:
            self._connection.send(bytes([status]))

    def _hear(self) -> None:
        assert self._connection is not None
        while self._connection.recv(1) == _LEAVE:
            preemption.ask()
        if not self._has_left:  # the job has given it up, as it would end a process of its own
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """The one that stands in."""
    engine = endpoints.connect(os.environ[_VARIABLE], _CONNECT_SECONDS)
    own = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    engine.sendall(json.dumps(own).encode() + b"\n")
    signal.signal(signal.SIGTERM, lambda *_: engine.send(_LEAVE))
    status = engine.recv(1)
    os._exit(status[0] if status else 1)


if __name__ == "__main__":
    main()
