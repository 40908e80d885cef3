"""Elastic training by the workers of Ray Train: Ray replaces the one that has died, and the others go on.

Ray calls that replica groups, of one worker each. horovodrun leads the job, beside Ray's controller; each
worker is a host of it, with one rank.
"""

import contextlib
import functools
import itertools
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.train.backend import Backend

from horovod.bootstrap import secret, start
from horovod.common import basics
from horovod.runner import stand_in

from . import nodes
from .elastic import Elastic, address_here, words_for
from .settings import nics_to_env_var, start_seconds

_LOOK_SECONDS = 1.0
_LAUNCHER = "import sys; from horovod.runner import launch, parent; parent.end_with(int(sys.argv.pop(1))); "
_LAUNCHER += "launch.run_commandline()"

_place: stand_in.Represented | None = None  # of a worker


class ElasticBackend(Backend):
    """Makes each worker a host of an elastic job, also those that come later in place of others."""

    has_replica_groups = True

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._secret = b""
        self._address = ""
        self._offer: secret.Offer | None = None
        self._launcher: subprocess.Popen[bytes] | None = None

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Starts the job, if these are all workers, and has them join."""
        variables = nics_to_env_var(backend_config.nics)
        if _is_whole(worker_group):
            self._begin(len(worker_group), variables, start_seconds(backend_config))
        for index in range(len(worker_group)):
            name = f"worker-{next(self._numbers)}"
            worker_group.execute_single(index, _serve, self._address, name, self._secret, variables)

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        """Ends the job, if these are all workers."""
        if _is_whole(worker_group):
            self._end()

    def _begin(self, workers: int, variables: Mapping[str, str], seconds: float) -> None:
        self._end()
        self._secret = secrets.token_bytes(secret.SECRET_BYTES)
        self._offer = secret.offer(self._secret)
        self._address = address_here(variables)
        limits = Elastic(1, workers, None, at_start=workers, start_seconds=seconds)
        words = [*words_for(limits, self._address, workers), "--", *stand_in.COMMAND]
        command = [sys.executable, "-c", _LAUNCHER, str(os.getpid()), *words]
        environ = {**os.environ, **variables, **self._offer.variables}
        self._launcher = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL)

    def _end(self) -> None:
        if self._launcher is not None and self._offer is not None:
            self._launcher.terminate()
            self._launcher.wait()
            self._offer.close()
        self._launcher = self._offer = None


def joining(train: Callable[..., Any]) -> Callable[..., Any]:
    """``train`` as a worker of an elastic job runs it."""
    return functools.update_wrapper(_Joining(train), train)


class _Joining:
    def __init__(self, train: Callable[..., Any]) -> None:
        self._train = train

    def __call__(self, *config: Any) -> Any:
        if _place is None:  # without workers, Ray calls the function in the driver's process
            return self._train(*config)
        if not _place.join():
            return None  # the others have come to the end without this one
        status = 1
        try:
            result = self._train(*config)
            status = 0
            return result
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
            raise
        finally:
            if start.is_started():
                basics.shutdown()
            _place.leave(status)


def _is_whole(worker_group: Any) -> bool:
    """Whether these are all workers, and not those of one replica group."""
    return hasattr(worker_group, "get_replica_groups")


def _serve(address: str, name: str, key: bytes, variables: Mapping[str, str]) -> None:
    global _place
    _place = stand_in.Represented(address, name, key, variables)
    threading.Thread(target=_watch, args=[_place], name="hvd-ray-draining", daemon=True).start()


def _watch(place: stand_in.Represented) -> None:
    """Hands over where Ray is about to take the node away."""
    own = ray.get_runtime_context().get_node_id()
    while True:
        time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
            if own in nodes.draining():
                place.hand_over()
                return
