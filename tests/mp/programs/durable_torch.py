"""Trains with torch and a folder for checkpoints, and prints a digest of everything at each commit.

Usage: durable_torch.py STEPS [SHARD]. SHARD: all ranks write.
"""

import hashlib
import sys
import time

import torch
from torch import nn

import horovod.torch as hvd
from horovod.elastic.checkpoint import durability, notes

STEPS = int(sys.argv[1])
if len(sys.argv) > 2:
    durability.SHARD_BYTES = 1
    notes.SMALL_BYTES = 4096

hvd.init()
torch.manual_seed(time.time_ns())  # each start with other numbers
net = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Linear(256, 64))
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters()), net.named_parameters())
sampler = hvd.elastic.ElasticSampler(range(10**6), shuffle=False)
state = hvd.elastic.TorchState(net, optimizer, sampler=sampler, step=0)


def digest() -> str:
    found = hashlib.sha256(str([state.step, sampler.state_dict()]).encode())
    for parameter in net.parameters():
        held = optimizer.state.get(parameter, {})
        for tensor in (parameter, *(held[key] for key in sorted(held))):
            found.update(tensor.detach().reshape(-1).numpy().tobytes())
    for buffer in net.buffers():
        found.update(buffer.reshape(-1).numpy().tobytes())
    return found.hexdigest()


def tell(what: str) -> None:
    """All ranks have the same, but for the statistics of batches."""
    if hvd.rank() == 0:
        print(f"{what} {state.step} {digest()}", flush=True)


@hvd.elastic.run(every_commits=1)
def train(state: hvd.elastic.TorchState) -> None:
    tell("begins")
    while state.step < STEPS:
        optimizer.zero_grad()
        loss = net(torch.randn(8, 64)).pow(2).mean()
        loss.backward()
        optimizer.step()
        sampler.record_batch(0, 8)
        state.record(step=state.step, loss=hvd.allreduce(loss.detach(), name="loss"))
        state.step += 1
        tell("commits")
        state.commit()
        time.sleep(0.01)


train(state)
hvd.shutdown()
