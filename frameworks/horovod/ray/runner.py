"""``RayExecutor``: a job on a Ray cluster."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .coordinator import Coordinator
from .elastic import Elastic, ElasticJob
from .nodes import RayHostDiscovery
from .settings import PLACEMENT_SECONDS, MiniSettings, check_gpus, nics_to_env_var, number, start_seconds
from .static import StaticJob
from .strategy import Strategy

__all__ = ["Coordinator", "MiniSettings", "RayExecutor"]


class RayExecutor:
    """A job whose ranks are actors of a Ray cluster.

    Args:
        settings: of ``create_settings``, or any other Settings.
        num_workers: how many ranks there are; they go where there is room, on as few nodes as possible.
        num_hosts: in place of that: on how many nodes there are ``num_workers_per_host`` ranks each.
        num_workers_per_host: see ``num_hosts``.
        cpus_per_worker: how many CPUs of the cluster each rank takes.
        use_gpu: whether ranks take GPUs, too.
        gpus_per_worker: how many, 1 by default.
        use_current_placement_group: in a placement group that this process is in, the ranks take its bundles.
        min_workers: makes the job elastic: it goes on as long as there are so many ranks.
        max_workers: to how many ranks an elastic job may grow.
        reset_limit: how often the ranks of an elastic job may start again.
        cooldown_range: the shortest and the longest time, in seconds, for which a node is left alone where
            ranks of an elastic job fail again and again.
        elastic_timeout: how many seconds an elastic job waits for ``min_workers``.
        override_discovery: whether an elastic job asks Ray for the nodes, and not ``settings.discovery``.

    Raises:
        ValueError: the numbers contradict each other.
    """

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[float] | None = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        check_gpus(use_gpu, gpus_per_worker)
        is_elastic = min_workers is not None or max_workers is not None
        if num_workers is not None and num_hosts is not None:
            raise ValueError("RayExecutor: num_workers and num_hosts exclude each other: give one of them")
        if num_workers is None and num_hosts is None and min_workers is None:
            raise ValueError("RayExecutor: say how many ranks there are: num_workers, or num_hosts")
        if is_elastic and num_hosts is not None:
            raise ValueError("RayExecutor: an elastic job (min_workers) has no num_hosts")
        self.settings = settings
        self.adapter: StaticJob | ElasticJob | None = None
        per_host = None if num_hosts is None else num_workers_per_host
        count = num_workers if num_hosts is None else num_hosts * num_workers_per_host
        if count is not None and count < 1:
            raise ValueError(f"RayExecutor: a job has at least 1 rank, and {count} are asked for")
        gpus = (gpus_per_worker or 1) if use_gpu else 0
        own = RayHostDiscovery(use_gpu, cpus_per_worker, gpus_per_worker or 1)
        self._plan: Strategy | Elastic = Strategy(
            count or 0,
            cpus_per_worker,
            gpus,
            number(settings, "placement_group_timeout_s", PLACEMENT_SECONDS),
            per_host,
            use_current_placement_group,
        )
        if is_elastic:
            self._plan = Elastic(
                min_workers or 1,
                max_workers,
                own if override_discovery else settings.discovery,
                cpus_per_worker,
                gpus,
                num_workers,
                reset_limit,
                cooldown_range,
                elastic_timeout,
                start_seconds(settings),
            )

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = PLACEMENT_SECONDS,
        nics: Any = None,
    ) -> MiniSettings:
        """What the constructor wants to have.

        Args:
            timeout_s: how many seconds the ranks wait for each other in ``hvd.init()``.
            ssh_identity_file: accepted, and not used.
            ssh_str: likewise; it is written nowhere.
            placement_group_timeout_s: how many seconds to wait for room in the cluster.
            nics: the network interfaces that the ranks may use.
        """
        return MiniSettings(
            nics=nics,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    @property
    def workers(self) -> list[Any]:
        """The actors, in the order of their ranks. In an elastic job the ranks are no actors."""
        return [] if self.adapter is None else list(self.adapter.workers)

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the ranks.

        Args:
            executable_cls: each rank makes an object of this class, for ``execute``.
            executable_args: its positional arguments.
            executable_kwargs: its keyword arguments.
            extra_env_vars: variables for the environment of the ranks. They come when Python runs already,
                and before anything of yours: what must be there earlier belongs into ``runtime_env``.

        Raises:
            TimeoutError: the cluster has no room, with what is wanted and what is available.
        """
        self.shutdown()
        variables = {**nics_to_env_var(getattr(self.settings, "nics", None)), **(extra_env_vars or {})}
        seconds = start_seconds(self.settings)
        if isinstance(self._plan, Elastic):
            self.adapter = ElasticJob(self._plan, variables)
        else:
            self.adapter = StaticJob(self._plan, variables, seconds)
        try:
            self.adapter.start(executable_cls, executable_args or (), executable_kwargs or {})
        except BaseException:
            self.shutdown()
            raise

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
    ) -> list[Any]:
        """Calls a function on each rank.

        Args:
            fn: it calls ``hvd.init()``, as in any other job.
            args: its positional arguments, the same on every rank.
            kwargs: its keyword arguments.
            callbacks: each is called with every value that a rank gives to ``ray_logger.log``.

        Returns:
            What it returned, in the order of the ranks.

        Raises:
            RankFailedError: a rank has ended; the text names it, its node and how, within about a second.
            Exception: what the function raised on the rank that failed first.
        """
        return self._job.run(fn, args, kwargs, callbacks or ())

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """The same without waiting: references to what ``fn`` returns, in the order of the ranks."""
        return self._job.run_remote(fn, args, kwargs)

    def execute(
        self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[[Any], Any]] | None = None
    ) -> list[Any]:
        """Calls ``fn(executable)`` on each rank, with its object of ``executable_cls``, or None."""
        return self._job.execute(fn, callbacks or ())

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls ``fn(executable)`` on rank 0."""
        return self._job.execute_single(fn)

    def shutdown(self) -> None:
        """Ends the ranks and gives their resources back. Idempotent."""
        job, self.adapter = self.adapter, None
        if job is not None:
            job.shutdown()

    @property
    def _job(self) -> StaticJob | ElasticJob:
        if self.adapter is None:
            raise RuntimeError("RayExecutor: call start() first")
        return self.adapter
