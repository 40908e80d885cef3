"""Training that goes on when workers are lost and when workers come::

import horovod.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, epochs):
        sampler.set_epoch(state.epoch)
        for number, (data, target) in enumerate(loader):
            step(data, target)
            sampler.record_batch(number, 32)
            state.commit()

train(state)
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any

from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.decorator import elastic
from horovod.torch.elastic.rate import LearningRateScale
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

if os.environ.get("HOROVOD_ELASTIC") == "1":
    # The first optimizer of a process imports this, for a second or more. Now a spare has time for it; when
    # it takes the place of a lost rank, all ranks would wait. What fails here fails there again.
    with contextlib.suppress(Exception):
        importlib.import_module("torch._dynamo")


def run(
    func: Callable[..., Any] | None = None,
    *,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    every_commits: int | None = None,
    every_seconds: float | None = None,
    keep: int = 3,
    allow_pickle: bool = False,
) -> Callable[..., Any]:
    """A decorator: ``func(state, ...)`` runs again, from the last commit, when ranks are lost, and from where
    it is when hosts have changed. With a folder, some commits are written there in the background, and a job
    that starts anew goes on from the newest::

        @hvd.elastic.run
        @hvd.elastic.run(checkpoint_dir="checkpoints", every_seconds=300)

    Args:
        func: the training; its first argument is the state.
        checkpoint_dir: the folder; None: that of HOROVOD_CHECKPOINT_DIR, or none.
        every_commits: write every so many commits.
        every_seconds: write after so many seconds; 60 when neither is given.
        keep: how many checkpoints to keep.
        allow_pickle: whether attributes may be pickled that have no other form on disk. Whoever can write
            to the folder can then run programs as you.

    Returns:
        The function to call; it raises CheckpointError when the folder, or what is in it, cannot be used.

    Raises:
        ValueError: a number is too small.
    """
    path = "" if checkpoint_dir is None else os.fspath(checkpoint_dir)
    checkpoints = Options(path, every_commits, every_seconds, keep, allow_pickle)
    return elastic(func, checkpoints=checkpoints)


__all__ = ["CheckpointError", "ElasticBatches", "ElasticSampler", "LearningRateScale", "TorchState", "run"]
