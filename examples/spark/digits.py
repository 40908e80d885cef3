"""Trains a small net on scikit-learn's handwritten digits, on the executors of a Spark application.

    python examples/spark/digits.py --ranks 2

It uses the application that spark-submit has started, or one on this machine. With --elastic the training
goes on when executors are lost. Checks that it learns, and that all ranks end with the same model.
"""

import argparse
import sys

import torch
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import horovod.spark
import horovod.torch as hvd


def train(epochs: int, rate: float) -> tuple[float, float]:
    """What each rank runs. Returns the accuracy, and the sum of all parameters."""
    hvd.init()
    torch.manual_seed(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    data = TensorDataset(x, y)
    sampler = hvd.elastic.ElasticSampler(data)  # each rank has its own part
    loader = DataLoader(data, batch_size=32, sampler=sampler)

    @hvd.elastic.run  # in a job that is not elastic it does nothing more
    def loop(state: hvd.elastic.TorchState) -> None:
        while state.epoch < epochs:
            for images, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
            state.epoch += 1
            sampler.set_epoch(state.epoch)  # another order in each epoch
            state.commit()

    loop(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0))
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    return accuracy, sum(parameter.double().sum().item() for parameter in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--elastic", action="store_true", help="go on as long as there is one rank")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("digits").getOrCreate()
    arguments = [args.epochs, args.lr]
    if args.elastic:
        results = horovod.spark.run_elastic(train, arguments, num_proc=args.ranks, min_num_proc=1)
    else:
        results = horovod.spark.run(train, arguments, num_proc=args.ranks)
    spark.stop()
    accuracies, sums = zip(*results, strict=True)
    is_well = accuracies[0] > 0.9 and len(set(sums)) == 1
    print(f"{len(results)} ranks, accuracy {accuracies[0]:.1%}, all ranks alike: {len(set(sums)) == 1}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
