"""Trains a small CNN on scikit-learn's handwritten digits.

One process:    python examples/torch_digits.py
Two processes:  horovodrun -np 2 python examples/torch_digits.py

What made the single-process script distributed are the five places marked # 1. to # 5.
"""

import argparse
import hashlib
import json
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


def make_model() -> nn.Module:
    """For images of 1x8x8."""
    convolutions = [nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 96, 3, padding=1), nn.ReLU()]
    classifier = [nn.Flatten(), nn.Linear(96 * 16, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), *classifier)


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The same split on every rank: four fifths to train with, one fifth to test with."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def train_epoch(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer
) -> tuple[float, float]:
    """This rank's mean loss and samples per second."""
    start, total, samples = time.perf_counter(), 0.0, 0
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        samples += len(labels)
    return total / samples, samples / (time.perf_counter() - start)


def digest(model: nn.Module) -> str:
    """Equal on two ranks only if every bit of every parameter is."""
    parts = [value.detach().cpu().contiguous().numpy().tobytes() for value in model.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.02, help="for one process")
    parser.add_argument("--json", metavar="FILE", help="write one line of JSON per epoch")
    args = parser.parse_args()

    hvd.init()  # 1. Join the other processes.
    torch.manual_seed(hvd.rank())
    train, test = load_data()
    model = make_model()

    # 2. Each process trains on its own part of the data.
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler, drop_last=True)

    # 3. Average the gradients of all processes in each step; the combined batch is larger, so is the rate.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # 4. Everybody starts from the parameters of rank 0.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    images, labels = (part[hvd.rank() :: hvd.size()] for part in test.tensors)
    lines, start = [], time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        loss, rate = train_epoch(model, loader, optimizer)
        # 5. Combine the figures of all processes; rank 0 alone prints and writes them.
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()
        rate = hvd.allreduce(torch.tensor(rate), name="rate").item() * hvd.size()
        with torch.no_grad():
            correct = (model.eval()(images).argmax(1) == labels).sum()
        accuracy = hvd.allreduce(correct, name="correct", op=hvd.Sum).item() / len(test)
        line = {"epoch": epoch, "loss": loss, "accuracy": accuracy, "samples_per_s": rate}
        lines.append({**line, "seconds": time.perf_counter() - start})
        if hvd.rank() == 0:
            print(f"epoch {epoch:2}  loss {loss:.4f}  accuracy {accuracy:.1%}  {rate:,.0f} samples/s")

    identical = len(set(hvd.allgather_object(digest(model)))) == 1
    if hvd.rank() == 0:
        print(f"{hvd.size()} process(es), final parameters {'bit-identical' if identical else 'DIFFER'}")
        if args.json:
            final = {"processes": hvd.size(), "identical": identical}
            with open(args.json, "w", encoding="utf-8") as file:
                file.writelines(json.dumps({**line, **final}) + "\n" for line in lines)
    hvd.shutdown()
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
