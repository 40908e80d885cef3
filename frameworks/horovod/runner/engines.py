"""What engines have in common whose tasks are hosts of a job: each runs an agent that dials the launcher."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

from horovod.bootstrap import secret as secrets
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.network.interfaces import INTERFACES_VARIABLE


class AgentProcess:
    """An agent of horovodrun as a child of this process, with which it ends."""

    def __init__(
        self,
        address: str,
        name: str,
        slots: int,
        secret: bytes,
        environ: Mapping[str, str],
        place: int | None = None,
    ) -> None:
        """Starts it. The secret is in a file that has no name, and in no environment.

        Args:
            address: where the launcher waits.
            name: of this host in the job.
            slots: how many ranks it may run.
            secret: what all hosts of the job prove.
            environ: of the agent, and what its ranks inherit.
            place: where the host stands among the others.
        """
        self._offer = secrets.offer(secret)
        agent = [sys.executable, "-m", "horovod.runner.agent", "--join", address, "--name", name]
        numbers = {"--slots": slots, "--place": place, "--end-with": os.getpid()}
        own = [word for flag, number in numbers.items() if number is not None for word in (flag, str(number))]
        variables = {**environ, **self._offer.variables}
        try:
            self.process = subprocess.Popen([*agent, *own], env=variables, stdin=subprocess.DEVNULL)
        except BaseException:
            self._offer.close()
            raise

    def wait(self) -> int:
        """Its status, once it has ended. To be called once: this process may serve other jobs after it."""
        try:
            return self.process.wait()
        finally:
            self._offer.close()

    def end(self, seconds: float) -> None:
        """In place of ``wait``: has it leave the job, if it has not ended after so many seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        self.wait()


def address_at(host: str, variables: Mapping[str, str]) -> str:
    """Where agents dial a launcher on this machine, which they know as ``host``; ``variables`` of the
    environment may say which ports the job may use.
    """
    port = endpoints.free_port(interfaces.from_environment(variables).ports, holds=True)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def nics_to_env_var(nics: str | Iterable[str] | None) -> dict[str, str]:
    """The variable that says on which network interfaces ranks meet; none where none are named."""
    names = nics.split(",") if isinstance(nics, str) else sorted(nics or ())
    return {INTERFACES_VARIABLE: ",".join(names)} if names else {}
