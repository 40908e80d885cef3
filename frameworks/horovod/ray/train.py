"""Ray Train: a trainer whose workers are the ranks of a job.

from horovod.ray.train import HorovodTrainer

trainer = HorovodTrainer(train, scaling_config=ScalingConfig(num_workers=4))
result = trainer.fit()
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.data_parallel_trainer import DataParallelTrainer as FirstVersion
from ray.train.v2._internal.constants import is_v2_enabled
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer as SecondVersion

from horovod.bootstrap import secret as secrets
from horovod.bootstrap import start
from horovod.common import basics

from .coordinator import Coordinator
from .nodes import names_of
from .replicas import ElasticBackend, joining
from .settings import MiniSettings, nics_to_env_var
from .worker import take_place


@dataclass
class HorovodConfig(MiniSettings, BackendConfig):
    """What the trainer has to know.

    Attributes:
        nics: the network interfaces that the ranks may use.
        timeout_s: how many seconds the ranks wait for each other in ``hvd.init()``.
        elastic: whether Ray replaces only the worker that has died, while the others go on: the training is
            in a function with ``@hvd.elastic.run``. Only with the second version of Ray Train.
        verbose: accepted, as are the following ones, and without effect.
    """

    elastic: bool = False

    @property
    def backend_cls(self) -> type[Backend]:
        """See BackendConfig."""
        return ElasticBackend if self.elastic else HorovodBackend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """See BackendConfig."""
        return contextlib.nullcontext if self.elastic else _in_job


class HorovodBackend(Backend):
    """Makes the workers of a group the ranks of a job."""

    share_cuda_visible_devices = True

    def __init__(self) -> None:
        self._coordinator: Coordinator | None = None

    def on_start(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """Tells each worker its rank, and where the ranks meet."""
        self._close()
        coordinator = self._coordinator = Coordinator(backend_config)
        places = worker_group.execute(_place)
        for rank, (node, hostname) in enumerate(places):
            coordinator.register(hostname, node, rank)
        names = names_of(dict(places))
        common = {**nics_to_env_var(backend_config.nics), **coordinator.establish_rendezvous()}
        secret = common.pop(secrets.SECRET_VARIABLE)
        for rank, numbers in coordinator.finalize_registration().items():
            own = {"HOROVOD_RANK": rank, "HOROVOD_SIZE": len(places), **numbers}
            variables = {**common, **own, "HOROVOD_HOSTNAME": names[places[rank][0]]}
            worker_group.execute_single(rank, _join, variables, secret)

    def on_shutdown(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """The ranks have no place to meet any more."""
        self._close()

    def _close(self) -> None:
        if self._coordinator is not None and self._coordinator.rendezvous is not None:
            self._coordinator.rendezvous.close()
        self._coordinator = None


class HorovodTrainer(SecondVersion if is_v2_enabled() else FirstVersion):  # type: ignore[misc]
    """Trains a function on the workers of Ray Train, which are the ranks of a job.

    Args:
        train_loop_per_worker: it calls ``hvd.init()``, as in any other job, and may use all of ``ray.train``.
        train_loop_config: its argument, if it takes one.
        horovod_config: see ``HorovodConfig``.
        scaling_config: how many workers there are, and what each takes.
        dataset_config: which datasets are split among them.
        run_config: where results and checkpoints go, and what happens when a worker fails.
        datasets: those of Ray Data, by name.
        metadata: of checkpoints; only in the first version of Ray Train.
        resume_from_checkpoint: likewise.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        horovod_config: HorovodConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Any = None,
    ) -> None:
        config = horovod_config or HorovodConfig()
        super().__init__(
            joining(train_loop_per_worker) if config.elastic else train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=config,
            scaling_config=scaling_config,
            dataset_config=dataset_config,
            run_config=run_config,
            datasets=datasets,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )


def _place() -> tuple[str, str]:
    """The node of a worker, and the system's name of it."""
    return str(ray.get_runtime_context().get_node_id()), os.uname().nodename


def _join(variables: Mapping[str, object], secret: str) -> None:
    take_place({name: str(value) for name, value in variables.items()}, bytes.fromhex(secret)).close()


@contextlib.contextmanager
def _in_job() -> Iterator[None]:
    """When a function ends, or fails, the others hear that this rank will not come again."""
    try:
        yield
    finally:
        if start.is_started():
            basics.shutdown()
