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

from horovod.common.basics import init, shutdown  # noqa: F401  # scripts import them from here
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.decorator import run_with
from horovod.elastic.run import run_fn  # noqa: F401  # likewise
from horovod.torch.elastic.rate import LearningRateScale
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

if os.environ.get("HOROVOD_ELASTIC") == "1":
    # The first optimizer of a process imports this, for a second or more. Now a spare has time for it; when
    # it takes the place of a lost rank, all ranks would wait. What fails here fails there again.
    with contextlib.suppress(Exception):
        importlib.import_module("torch._dynamo")


run = run_with()


__all__ = ["CheckpointError", "ElasticBatches", "ElasticSampler", "LearningRateScale", "TorchState", "run"]
