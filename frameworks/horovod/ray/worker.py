"""The actor that is a rank."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ray

from horovod.bootstrap import secret as secrets
from horovod.bootstrap import start
from horovod.bootstrap.network import endpoints, interfaces
from horovod.bootstrap.store.client import StoreClient
from horovod.common import basics
from horovod.runner.nodes import guard

from . import ray_logger
from .voice import Voice


class Whereabouts(NamedTuple):
    """Where an actor runs. ``port``: one that is free there; ``gpus``: those that Ray gives it."""

    node: str
    hostname: str
    address: str
    pid: int
    port: int
    gpus: tuple[str, ...]


class BaseHorovodWorker:
    """A rank of a ``RayExecutor``; ``executable`` is the object of ``executable_cls``, if there is one."""

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        """Which rank it is, and of how many, is known when all actors are placed: see ``join``."""
        self.world_rank, self.world_size = world_rank, world_size
        self._voice: Voice | None = None

    def whereabouts(self) -> Whereabouts:
        """Where this actor runs."""
        port = endpoints.free_port(interfaces.from_environment(os.environ).ports)
        gpus = tuple(map(str, ray.get_gpu_ids()))
        address = ray.util.get_node_ip_address()
        return Whereabouts(self.node_id(), self.hostname(), address, os.getpid(), port, gpus)

    def node_id(self) -> str:
        """What Ray calls the node."""
        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        """The system's name of the node."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """The GPUs that Ray gives to this actor."""
        return list(ray.get_gpu_ids())

    def env_vars(self) -> dict[str, str]:
        """The environment."""
        return dict(os.environ)

    def update_env_vars(self, env_vars: Mapping[str, object]) -> None:
        """Sets variables of the environment."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def join(self, variables: Mapping[str, str], secret: bytes) -> None:
        """Makes this actor the rank that ``variables`` tell. From now on the driver shows its output."""
        store = take_place(variables, secret)
        self.world_rank, self.world_size = int(variables["HOROVOD_RANK"]), int(variables["HOROVOD_SIZE"])
        self._voice = Voice(store)
        ray_logger.configure(self._voice)

    def start_executable(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the object that ``execute`` hands to functions."""
        if executable_cls is not None:
            self.executable = self._spoken(executable_cls, executable_args or (), executable_kwargs or {})

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Calls a function with the object of ``executable_cls``, or with None."""
        return self._spoken(func, (self.executable,), {})

    def call(self, called: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]) -> Any:
        """Calls a function with its arguments."""
        return self._spoken(*called)

    def leave(self) -> None:
        """Ends this rank's part in the job, and what it has started: Ray kills an actor without asking it."""
        _stop()
        for pid in guard.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _spoken(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the function returns, once the driver has what it has printed."""
        try:
            return func(*args, **kwargs)
        except Exception:
            _stop()  # others that wait for this rank hear that it will not come
            raise
        finally:
            if self._voice is not None:
                self._voice.drain()


def take_place(variables: Mapping[str, str], secret: bytes) -> StoreClient:
    """Makes this process the rank that ``variables`` tell; a connection of it to where the ranks meet. The
    secret goes from the message to the library: it is in no environment.
    """
    secrets.remove(os.environ)
    os.environ.update(variables)
    return start.launchers_store({**os.environ, secrets.SECRET_VARIABLE: secret.hex()})


def _stop() -> None:
    if start.is_started():
        basics.shutdown()


__all__ = ["BaseHorovodWorker"]
