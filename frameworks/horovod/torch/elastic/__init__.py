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

from collections.abc import Callable
from typing import Any

from horovod.elastic.decorator import elastic
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: ``func(state, ...)`` runs again, from the last commit, when ranks are lost, and from where
    it is when hosts have changed.

    Args:
        func: the training; its first argument is the state.

    Returns:
        The function to call.
    """
    return elastic(func)


__all__ = ["ElasticSampler", "run", "TorchState"]
