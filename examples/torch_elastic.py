"""Trains a small net on scikit-learn's handwritten digits, and goes on when processes die or join.

    horovodrun -np 3 --min-np 1 --spares 1 --chaos kill:every=10s python examples/torch_elastic.py

Within 30 seconds --chaos kills two or three processes. Without it, kill some yourself. What made the
distributed script elastic are the four places marked # 1. to # 4.
"""

import argparse
import os
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The same split on every rank: four fifths to train with, one fifth to test with."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    with torch.no_grad():
        return (model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.05, help="for one process")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds after each step, to watch")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train_data, test_data = load_data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

    # 1. The sampler knows which samples of the epoch are done, on any rank.
    sampler = hvd.elastic.ElasticSampler(train_data)
    loader = DataLoader(train_data, batch_size=args.batch, sampler=sampler)

    # 2. What the training needs to go on. A new process gets it from the others.
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, starts=0, lost=0.0, time=0.0)

    # 3. Called again after a process has died or joined.
    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        print(f"rank {hvd.rank()} of {hvd.size()}, pid {os.getpid()}: epoch {state.epoch}", flush=True)
        state.lost += time.time() - state.time if state.starts else 0.0
        state.starts += 1
        while state.epoch < args.epochs:
            model.train()
            for number, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                time.sleep(args.pause)
                sampler.record_batch(number, args.batch)
                state.time = time.time()
                state.commit()  # 4. From here the others go on when a process is lost.
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: accuracy {accuracy(model, test_data):.1%}", flush=True)

    train(state)
    if hvd.rank() == 0:
        print(f"{accuracy(model, test_data):.1%} of the test images are recognised")
        print(f"{state.starts} generations; the changes took {state.lost:.3g} s, from commit to next step")


if __name__ == "__main__":
    main()
