"""Trains a small net of gluon on handwritten digits, and goes on when processes die or join.

    horovodrun -np 3 --min-np 1 --spares 1 python examples/mxnet_elastic.py

Kill one of the processes while it runs, or let horovodrun do it: --chaos kill:every=5s. What made the
distributed script elastic are the four places marked # 1. to # 4.
"""

import argparse
import os

import numpy as np
from sklearn.datasets import load_digits

import horovod.mxnet as hvd  # before MXNet, which it makes importable with numpy 1.24 and later

# isort: split
import mxnet as mx
from mxnet import autograd, gluon


def load_data() -> tuple[np.ndarray, np.ndarray, int]:
    """Images and labels, in the same order on every rank, and how many of them are to train with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(labels))
    return images[order].astype("float32") / 16, labels[order], len(order) * 4 // 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=96, help="samples of all processes together in a step")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    hvd.init()
    mx.random.seed(1)
    images, labels, count = load_data()
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, in_units=64, activation="relu"), gluon.nn.Dense(10, in_units=128))
    net.initialize(mx.init.Xavier())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": args.lr, "momentum": 0.9})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    # 1. The same batches, however many processes share them.
    batches = hvd.elastic.ElasticBatches(count, args.batch)

    # 2. What the training needs to go on. A new process gets it from the others.
    state = hvd.elastic.MXNetState(net, trainer, batches=batches)

    def accuracy() -> float:
        predicted = net(mx.nd.array(images[count:])).argmax(axis=1).asnumpy()
        return float((predicted == labels[count:]).mean())

    # 3. Called again after a process was lost or has come.
    @hvd.elastic.run
    def train(state: hvd.elastic.MXNetState) -> None:
        print(f"rank {hvd.rank()} of {hvd.size()}, pid {os.getpid()}: epoch {batches.epoch}", flush=True)
        while batches.epoch < args.epochs:
            for part in batches.parts():
                with autograd.record():
                    output = net(mx.nd.array(images[part.indices]))
                    loss = part.weight * loss_of(output, mx.nd.array(labels[part.indices])).mean()
                loss.backward()
                trainer.step(1)  # the loss is a mean already
                batches.record_step()
                state.commit()  # 4. From here the others go on when a process is lost.
            batches.set_epoch(batches.epoch + 1)
            if hvd.rank() == 0:
                print(f"epoch {batches.epoch}: accuracy {accuracy():.1%}", flush=True)

    train(state)
    if hvd.rank() == 0:
        print(f"{accuracy():.1%} of the test images are recognised")


if __name__ == "__main__":
    main()
