"""Trains a small CNN of gluon on scikit-learn's handwritten digits.

One process:    python examples/mxnet_digits.py
Two processes:  horovodrun -np 2 python examples/mxnet_digits.py

What made the single-process script distributed are the five places marked # 1. to # 5.
"""

import argparse
import hashlib
import json
import sys
import time

import numpy as np
from sklearn.datasets import load_digits

import horovod.mxnet as hvd  # before MXNet, which it makes importable with numpy 1.24 and later

# isort: split
import mxnet as mx
from mxnet import autograd, gluon


def make_model() -> gluon.nn.HybridSequential:
    """For images of 1x8x8. The sizes of the layers become known with the first batch."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(48, 3, padding=1, activation="relu"))
    net.add(gluon.nn.Conv2D(96, 3, padding=1, activation="relu"))
    net.add(gluon.nn.MaxPool2D(), gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The same split on every rank: four fifths to train with, one fifth to test with."""
    digits = load_digits()
    images = (digits.images[:, np.newaxis] / 16).astype(np.float32)
    order = np.random.default_rng(1).permutation(len(images))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def train_epoch(
    net: gluon.nn.HybridSequential,
    trainer: gluon.Trainer,
    images: np.ndarray,
    labels: np.ndarray,
    batch: int,
) -> tuple[mx.nd.NDArray, float]:
    """This rank's mean loss and samples per second."""
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    start, total, samples = time.perf_counter(), mx.nd.zeros(1), len(labels) // batch * batch
    for first in range(0, samples, batch):
        part = slice(first, first + batch)
        with autograd.record():
            loss = loss_of(net(mx.nd.array(images[part])), mx.nd.array(labels[part]))
        loss.backward()
        trainer.step(batch)
        total = total + loss.sum()
    total.wait_to_read()
    return total / samples, samples / (time.perf_counter() - start)


def digest(net: gluon.nn.HybridSequential) -> str:
    """Equal on two ranks only if every bit of every parameter is."""
    parts = [parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.02, help="for one process")
    parser.add_argument("--json", metavar="FILE", help="write one line of JSON per epoch")
    args = parser.parse_args()

    hvd.init()  # 1. Join the other processes.
    mx.random.seed(hvd.rank())
    (images, labels), (test_images, test_labels) = load_data()
    net = make_model()

    # 2. Average the gradients of all processes in each step; the combined batch is larger, so is the rate.
    options = {"learning_rate": args.lr * hvd.size(), "momentum": 0.9}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", options)

    # 3. Everybody starts from the parameters of rank 0, as soon as there are any.
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)

    mine = slice(hvd.rank(), None, hvd.size())
    lines = []
    for epoch in range(1, args.epochs + 1):
        # 4. Each process trains on its own part of the data, all parts of one size.
        order = np.random.default_rng(epoch).permutation(len(labels) // hvd.size() * hvd.size())[mine]
        loss, rate = train_epoch(net, trainer, images[order], labels[order], args.batch)
        # 5. Combine the figures of all processes; rank 0 alone prints and writes them.
        loss = hvd.allreduce(loss, name="loss").asscalar().item()
        rate = hvd.metric.get_global_mean(rate) * hvd.size()
        correct = net(mx.nd.array(test_images[mine])).argmax(axis=1) == mx.nd.array(test_labels[mine])
        accuracy = hvd.allreduce(correct.sum(), name="correct", op=hvd.Sum).asscalar() / len(test_labels)
        lines.append({"epoch": epoch, "loss": loss, "accuracy": accuracy, "samples_per_s": rate})
        if hvd.rank() == 0:
            print(f"epoch {epoch:2}  loss {loss:.4f}  accuracy {accuracy:.1%}  {rate:,.0f} samples/s")

    identical = len(set(hvd.allgather_object(digest(net)))) == 1
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
