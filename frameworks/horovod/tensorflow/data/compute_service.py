"""tf.data on processes of their own: a job of *compute workers* runs the input pipeline, and the ranks of a
training fetch its batches::

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/data.json
    horovodrun -np 2 python train.py /shared/data.json

with, in the training::

    config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
    dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size())

Data travels by TensorFlow's own data service, whose ports serve whoever reaches them: keep them within your
network. What the processes tell each other through this library is authenticated.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.data.experimental import service

import horovod.tensorflow as hvd
from horovod.tensorflow.data.registry import ComputeClient, own_addresses

TRAINING, COMPUTE = "training", "compute"
SIDES = (TRAINING, COMPUTE)
_PATIENCE = 600.0  # seconds for a file to be written
_LOOK_AGAIN = 0.2


@dataclass(frozen=True)
class TfDataServiceConfig:
    """How to reach a data service. Whoever has it may use the service: it holds the key.

    Attributes:
        dispatchers: how many there are; each serves datasets of its own.
        workers_per_dispatcher: how many compute workers each has.
        dispatcher_side: where they run, in the "compute" job or in the "training".
        addresses: of the registry where the processes meet.
        key: what they prove there.
        timeout: seconds that each waits for the others.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: str
    key: bytes = field(repr=False)  # a program may print this
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in SIDES:
            raise ValueError(f"dispatcher_side is {self.dispatcher_side!r}; it must be one of {SIDES}.")
        for name in ("dispatchers", "workers_per_dispatcher", "timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """What talks to the registry. ``verbose``: from 2 on, it says what is registered."""
        return ComputeClient(self.addresses, self.key, self.workers_per_dispatcher, self.timeout, verbose)

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {**asdict(self), "key": base64.b64encode(self.key).decode()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The inverse of ``to_dict``."""
        return TfDataServiceConfig(**{**config, "key": base64.b64decode(config["key"])})

    def write(self, filename: str) -> None:
        """Writes a file that its owner alone may read. It is there with all its text or not at all."""
        fresh = f"{filename}.{os.getpid()}"
        with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(self.to_dict(), file)
        os.replace(fresh, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Reads what ``write`` has written; ``wait_for_file_creation``: also what will be written soon.

        Raises:
            TimeoutError: no file came within ten minutes.
            ValueError: the file holds something else.
        """
        deadline = time.monotonic() + _PATIENCE
        while wait_for_file_creation and not os.path.exists(filename):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{filename} was not written within {_PATIENCE:g} s: does the service run?"
                )
            time.sleep(_LOOK_AGAIN)
        with open(filename, encoding="utf-8") as file:
            text = file.read()
        try:
            return TfDataServiceConfig.from_dict(json.loads(text))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{filename} does not describe a data service: {error}") from None


@contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Within it a rank of a training may use its dispatcher; gives the address, as "grpc://host:port".

    Where dispatchers are on the "training" side, the first ranks run them until the end, and rank 0 ends the
    service then: have all ranks leave together, by ``hvd.barrier()``. A rank that still reads would wait for
    ever.

    Args:
        compute_config: of the service.
        rank: of this process in the training.

    Raises:
        TimeoutError: dispatcher or workers did not come in time.
    """
    client = compute_config.compute_client()
    by_training = compute_config.dispatcher_side == TRAINING
    server = None
    if by_training and rank < compute_config.dispatchers:
        server = _start_dispatcher(client, rank)
    dispatcher = rank % compute_config.dispatchers
    try:
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher, compute_config.timeout)
        yield f"grpc://{address}"
    finally:
        if by_training and rank == 0:
            client.shutdown()
        del server


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """The same dataset, computed by the service; also a method of ``tf.data.Dataset``.

    Args:
        dataset: with all its transformations.
        compute_config: of the service, with dispatchers on the "compute" side.
        rank: of this process in the training.
        size: of the training; for ``round_robin``.
        processing_mode: of TensorFlow: "distributed_epoch" gives every element once, "parallel_epochs" once
            by each worker.
        reuse_dataset: the ranks of one dispatcher share the elements; otherwise each has all of them.
        round_robin: with ``reuse_dataset``: the ranks take turns, in step. The dataset must be endless.

    Raises:
        RuntimeError: dispatchers are on the "training" side: use ``tf_data_service``.
        ValueError: ``round_robin`` without ``reuse_dataset`` or ``size``.
    """
    if compute_config.dispatcher_side == TRAINING:
        raise RuntimeError(
            "The dispatchers of this data service run in the training: apply "
            "tf.data.experimental.service.distribute within `with tf_data_service(compute_config, rank)`."
        )
    if round_robin and not (reuse_dataset and size):
        raise ValueError("round_robin=True takes turns over one dataset: give reuse_dataset=True and size.")
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if round_robin else None,
                num_consumers=size if round_robin else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Serves as one compute worker, and perhaps as a dispatcher, until the service is shut down. To be called
    on all ranks of a job of ``dispatchers * workers_per_dispatcher``.
    """
    hvd.init()
    worker = hvd.rank()
    dispatcher, place = divmod(worker, compute_config.workers_per_dispatcher)
    client = compute_config.compute_client(verbose=2)
    server = None
    if compute_config.dispatcher_side == COMPUTE and place == 0:
        server = _start_dispatcher(client, dispatcher)
    address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
    serves = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=address, worker_address=f"{_own_host()}:%port%")
    )
    client.register_worker_for_dispatcher(dispatcher, worker)
    client.wait_for_shutdown()
    del serves, server


def _start_dispatcher(client: ComputeClient, number: int) -> Any:
    server = service.DispatchServer(service.DispatcherConfig())
    client.register_dispatcher(number, f"{_own_host()}:{server.target.rpartition(':')[2]}")
    return server


def _own_host() -> str:
    host = own_addresses()[0]
    return f"[{host}]" if ":" in host else host
