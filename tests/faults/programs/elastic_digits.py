"""Elastic training of the digits net, again and again until a moment of the machine's clock.

Usage: elastic_digits.py UNTIL [EPOCHS]. Each training has EPOCHS epochs and begins with the same parameters.
Lines tell the accuracy of each, where a worker begins, how far rank 0 has come, and what must never be: ranks
whose parameters differ at a commit, a commit that is lost, or a loss that is no number. All trainings make
the same steps, whatever happens, so they come to the same accuracy.
"""

import hashlib
import math
import os
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

UNTIL = float(sys.argv[1])
EPOCHS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
BATCH = 64  # of all ranks together, however many there are
PACE = 0.02  # seconds that a step takes at least


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Four fifths to train with, one fifth to test with."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def tell(*words: object) -> None:
    print(*words, f"at {time.monotonic():.3f}", flush=True)


def digest(model: nn.Module) -> bytes:
    """Of all parameters, to the last bit."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.digest()


class State(hvd.elastic.TorchState):
    newest = 0  # the step of the last commit of this process

    def save(self) -> None:
        super().save()
        type(self).newest = max(self.newest, self.step)


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train_data, test_data = load_data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    batches = hvd.elastic.ElasticBatches(train_data, BATCH)
    loader = DataLoader(train_data, batch_sampler=batches)
    state = State(model, optimizer, batches=batches, step=0, trainings=0)

    def compare() -> None:
        digests = hvd.allgather_object(digest(model), name="digest")
        if len(set(digests)) > 1 and hvd.rank() == 0:
            tell("WRONG the ranks have different parameters after step", state.step)

    def one_epoch() -> None:
        for part, (images, labels) in zip(batches.parts(), loader, strict=True):
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = part.weight * F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if not math.isfinite(loss.item()):
                tell("WRONG loss", loss.item())
            batches.record_step()
            state.step += 1
            compare()
            state.commit()
            if hvd.rank() == 0 and state.step % 5 == 0:
                tell("step", state.step, "of", hvd.size())
            time.sleep(max(0.0, PACE - (time.monotonic() - begin)))

    def finish_training() -> None:
        right = (model(test_data.tensors[0]).argmax(1) == test_data.tensors[1]).float().mean().item()
        if hvd.rank() == 0:
            tell("accuracy", f"{right:.4f}")
        model.load_state_dict(start)
        batches.set_epoch(0)
        state.trainings += 1

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        tell("begins as rank", hvd.rank(), "of", hvd.size(), "pid", os.getpid())
        if state.step < state.newest:
            tell("WRONG step", state.step, "after a commit of step", state.newest)
        while True:
            while batches.epoch < EPOCHS:
                one_epoch()
                batches.set_epoch(batches.epoch + 1)
            finish_training()
            # All end after the same training, whatever their clocks say.
            if hvd.broadcast_object(time.monotonic() >= UNTIL, root_rank=0, name="over"):
                return
            state.commit()

    train(state)
    tell("is done as rank", hvd.rank())


if __name__ == "__main__":
    main()
