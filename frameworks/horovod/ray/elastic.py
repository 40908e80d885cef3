"""Jobs that go on when nodes, actors and ranks end, and use nodes that come: horovodrun leads them."""

import contextlib
import functools
import math
import os
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import client

from horovod.bootstrap import secret
from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE
from horovod.runner import engines
from horovod.runner.call.child import Caller
from horovod.runner.call.run import command, run_job

from . import nodes, ray_logger
from .elsewhere import run_elsewhere
from .hosts import Hosts, Terms
from .nodes import RayHostDiscovery
from .settings import MiniSettings, check_gpus, nics_to_env_var, number, start_seconds

__all__ = ["ElasticRayExecutor", "RayHostDiscovery"]

Callbacks = Sequence[Callable[[Any], Any]]
_FIRST_SECONDS = 10.0  # for the nodes that are there already
_LOST_SECONDS = "4"  # Ray's nodes are in one network: a connection that breaks there has lost its node


@dataclass(frozen=True)
class Elastic:
    """How many ranks a job may have, and what each takes; see ``RayExecutor``. ``discovery`` says which nodes
    it uses, by the address or the name of each.
    """

    fewest: int
    most: int | None
    discovery: Any
    cpus: float = 1
    gpus: float = 0
    at_start: int | None = None
    resets: int | None = None
    cooldown: Sequence[float] | None = None
    patience: float = 600
    start_seconds: float = 30


class ElasticJob:
    """What an executor does with it. Each run is a job of its own."""

    workers: Sequence[Any] = ()

    def __init__(self, elastic: Elastic, variables: Mapping[str, str]) -> None:
        self._elastic = elastic
        threads = str(max(1, int(elastic.cpus)))  # Ray has told each actor how many all its ranks have
        own = {HOST_TIMEOUT_VARIABLE: _LOST_SECONDS, "OMP_NUM_THREADS": threads}
        self._variables = {**own, **variables}
        self._executable: tuple[Any, ...] = ()

    def start(self, executable_cls: type | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keeps what ``execute`` needs: ranks are started by each run."""
        self._executable = () if executable_cls is None else (executable_cls, args, kwargs)

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any, callbacks: Callbacks) -> list[Any]:
        """What the function returns on each rank that does its work to the end."""
        if client.ray.is_connected():  # nodes cannot dial this driver
            return run_elsewhere(self, function, args, kwargs, callbacks)

        key = secrets.token_bytes(secret.SECRET_BYTES)
        address = address_here(self._variables)
        elastic = self._elastic
        terms = Terms(address, key, self._variables, elastic.cpus, elastic.gpus)
        with (
            contextlib.closing(secret.offer(key)) as offer,
            contextlib.closing(Hosts(self._find, terms)) as hosts,
        ):
            words = words_for(elastic, address, hosts.begin(_FIRST_SECONDS))
            environ = {**os.environ, **self._variables, **offer.variables}
            caller = Caller(environ, on_note=functools.partial(ray_logger.hand_over, callbacks=callbacks))
            return run_job([*words, "--", *command()], function, args or (), kwargs or {}, caller)

    def execute(self, function: Callable[[Any], Any], callbacks: Callbacks) -> list[Any]:
        """What it returns for an object of the class that each rank makes for itself."""
        made = self._executable

        def on_rank() -> Any:
            return function(made[0](*made[1], **made[2]) if made else None)

        return self.run(on_rank, (), {}, callbacks)

    def run_remote(self, *_: Any) -> list[Any]:
        """There is nothing to refer to: ranks come and go."""
        raise NotImplementedError("run_remote in an elastic job: its ranks are no actors; use run()")

    def execute_single(self, *_: Any) -> Any:
        """Likewise."""
        raise NotImplementedError("execute_single in an elastic job: its ranks are no actors; use run()")

    def shutdown(self) -> None:
        """Each run ends what it has started."""

    def _find(self, busy: Collection[str]) -> dict[str, int]:
        alive = nodes.alive()
        if isinstance(self._elastic.discovery, RayHostDiscovery):
            free = _free_resources() if busy else {}
            slots = self._elastic.discovery.slots
            return {
                node: slots(free.get(node, {}) if node in busy else found["Resources"])
                for node, found in alive.items()
            }
        named = self._elastic.discovery.find_available_hosts_and_slots()
        found = {}
        for node, told in alive.items():
            names = (told["NodeManagerAddress"], told["NodeManagerHostname"], node)
            found[node] = next((named[name] for name in names if name in named), 0)
        return found


class ElasticRayExecutor:
    """A job that goes on when nodes or ranks are lost, and uses nodes that come to the cluster.

    Args:
        settings: of ``create_settings``.
        use_gpu: whether ranks take GPUs, too.
        cpus_per_slot: how many CPUs of the cluster each rank takes.
        gpus_per_slot: how many GPUs, 1 by default.
        env_vars: variables for the environment of the ranks.
        override_discovery: whether to ask Ray for the nodes, and not ``settings.discovery``.

    Raises:
        ValueError: GPUs that nobody uses.
    """

    def __init__(
        self,
        settings: Any,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        override_discovery: bool = True,
    ) -> None:
        check_gpus(use_gpu, gpus_per_slot)
        self.settings = settings
        gpus = (gpus_per_slot or 1) if use_gpu else 0
        own = RayHostDiscovery(use_gpu, cpus_per_slot, gpus_per_slot or 1)
        limits = Elastic(
            int(number(settings, "min_num_proc", 1)),
            getattr(settings, "max_num_proc", None),
            own if override_discovery else settings.discovery,
            cpus_per_slot,
            gpus,
            resets=getattr(settings, "reset_limit", None),
            cooldown=getattr(settings, "cooldown_range", None),
            patience=number(settings, "elastic_timeout", 600),
            start_seconds=start_seconds(settings),
        )
        variables = {**nics_to_env_var(getattr(settings, "nics", None)), **(env_vars or {})}
        self._job = ElasticJob(limits, variables)

    @classmethod
    def create_settings(
        cls,
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: Any = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> MiniSettings:
        """What the constructor wants to have.

        Args:
            min_num_proc: the job goes on as long as there are so many ranks.
            max_num_proc: to so many it may grow; None: to as many as there is room for.
            reset_limit: how often its ranks may start again.
            elastic_timeout: how many seconds it waits for ``min_num_proc``.
            timeout_s: how many seconds the ranks wait for each other in ``hvd.init()``.
            ssh_identity_file: accepted, and not used.
            nics: the network interfaces that the ranks may use.
            min_np: the old name of ``min_num_proc``.
            max_np: the old name of ``max_num_proc``.
            **kwargs: further attributes of the settings, such as ``discovery`` and ``cooldown_range``.
        """
        settings = MiniSettings(nics=nics, ssh_identity_file=ssh_identity_file, timeout_s=timeout_s)
        limits = {"reset_limit": reset_limit, "elastic_timeout": elastic_timeout}
        limits["min_num_proc"] = min_num_proc if min_np is None else min_np
        limits["max_num_proc"] = max_num_proc if max_np is None else max_np
        vars(settings).update({**limits, **kwargs})
        return settings

    def start(self) -> None:
        """Does nothing: ``run`` starts the ranks."""

    def run(self, worker_fn: Callable[[], Any], callbacks: Callbacks | None = None) -> list[Any]:
        """Calls a function on each rank, and on each that comes later.

        Args:
            worker_fn: it calls ``hvd.init()``, and has its training in a function with ``@hvd.elastic.run``.
            callbacks: each is called with every value that a rank gives to ``ray_logger.log``.

        Returns:
            What it returned on each rank that did its work to the end, in the order of the ranks.

        Raises:
            RuntimeError: the job cannot go on; the text has the launcher's report.
            Exception: what the function raised on the last ranks.
        """
        return self._job.run(worker_fn, (), {}, callbacks or ())

    def run_remote(self, *_: Any) -> list[Any]:
        """Not in an elastic job. Raises NotImplementedError."""
        return self._job.run_remote()

    def execute_single(self, *_: Any) -> Any:
        """Not in an elastic job. Raises NotImplementedError."""
        return self._job.execute_single()


def words_for(elastic: Elastic, address: str, room: int) -> list[str]:
    """The options of horovodrun; ``room``: for how many ranks there are nodes by now."""
    first = elastic.at_start or min(max(room, elastic.fewest), elastic.most or room + elastic.fewest)
    given = {
        "-np": first,
        "--min-np": elastic.fewest,
        "--max-np": elastic.most,
        "--rendezvous": address,
        "--wait-for-hosts": 1,
        "--slots-per-host": 1,
        "--reset-limit": elastic.resets,
        "--elastic-timeout": math.ceil(elastic.patience),
        "--start-timeout": math.ceil(elastic.start_seconds),
    }
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    cooldown = [] if elastic.cooldown is None else [f"{seconds:g}" for seconds in elastic.cooldown]
    return [*words, *(["--blacklist-cooldown-range", *cooldown] if cooldown else [])]


def address_here(variables: Mapping[str, str]) -> str:
    """Where nodes dial this one."""
    return engines.address_at(ray.util.get_node_ip_address(), variables)


def _free_resources() -> dict[str, dict[str, float]]:
    """Of each node, by its id, what nobody uses; of none where this version of Ray does not say it."""
    try:
        from ray._private.state import available_resources_per_node
    except ImportError:
        return {}
    return dict(available_resources_per_node())
