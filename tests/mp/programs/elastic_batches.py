"""Elastic training of a linear model with a constant global batch; tells the loss of every step.

Usage: elastic_batches.py RANKS BATCH LARGEST SECONDS. It ends after 15 steps of so many RANKS. Rank 0
tells of each step, "step N of SIZE ranks", and at the end of all losses: a rank may be lost after the others
have committed a step and before it could tell of it.
"""

import json
import sys
import time

import torch

import horovod.torch as hvd

LAST, BATCH, LARGEST = (int(word) for word in sys.argv[1:4])
SECONDS = float(sys.argv[4])
SAMPLES, INPUTS = 203, 6  # the last batch of an epoch is a short one


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, INPUTS, generator=dice, dtype=torch.float64)
    targets = torch.randn(SAMPLES, 1, generator=dice, dtype=torch.float64)
    model = torch.nn.Linear(INPUTS, 1, dtype=torch.float64)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    batches = hvd.elastic.ElasticBatches(SAMPLES, BATCH, LARGEST or None, seed=3)
    loader = torch.utils.data.DataLoader(range(SAMPLES), batch_sampler=batches)
    state = hvd.elastic.TorchState(model, optimizer, batches=batches, step=0, last=0, losses=[])

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        optimizer.set_backward_passes_per_step(batches.passes)
        while True:
            loss = torch.zeros((), dtype=torch.float64)
            for part, indices in zip(batches.parts(), loader, strict=True):
                of_part = part.weight * (model(inputs[indices]) - targets[indices]).square().mean()
                of_part.backward()
                loss += of_part.detach()
                if not part.ends_step:
                    continue
                optimizer.step()
                optimizer.zero_grad()
                mean = hvd.allreduce(loss, name="loss")
                loss = torch.zeros((), dtype=torch.float64)
                state.step += 1
                state.last += hvd.size() == LAST
                state.losses.append((hvd.size(), mean.item()))
                if hvd.rank() == 0:
                    print(f"step {state.step} of {hvd.size()} ranks", flush=True)
                batches.record_step()
                state.commit()
                time.sleep(SECONDS)
                if state.last == 15:
                    return
            batches.set_epoch(batches.epoch + 1)

    train(state)
    if hvd.rank() == 0:
        print("losses", json.dumps(state.losses), flush=True)


main()
