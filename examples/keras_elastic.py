"""Trains a small net on scikit-learn's handwritten digits with ``model.fit``, and goes on when processes
die or join.

    horovodrun -np 3 --min-np 1 --spares 1 python examples/keras_elastic.py

Kill one of the processes while it runs, or let horovodrun do it: --chaos kill:every=20s. What made the
distributed script elastic are the four places marked # 1. to # 4.
"""

import argparse
import os

import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd


def load_data() -> tuple[np.ndarray, np.ndarray, int]:
    """Images and labels, in the same order on every rank, and how many of them are to train with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(labels))
    return images[order].astype("float32") / 16, labels[order], len(order) * 4 // 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.05, help="for one process")
    args = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(1)
    images, labels, count = load_data()
    layers = [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])

    # 1. Which samples of the epoch are done, whoever has done them.
    indices = hvd.elastic.ElasticIndices(count)

    # 2. What the training needs to go on. A new process gets it from the others.
    state = hvd.elastic.KerasState(model, indices=indices, epoch=0)

    def note(batch: int, logs: dict[str, float]) -> None:
        indices.record_batch(batch, args.batch)

    callbacks = [
        keras.callbacks.LambdaCallback(on_train_batch_end=note),
        hvd.elastic.CommitStateCallback(state),  # 3. From here the others go on when a process is lost.
    ]

    # 4. Called again after a process was lost or has come.
    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        print(f"rank {hvd.rank()} of {hvd.size()}, pid {os.getpid()}: epoch {state.epoch}", flush=True)
        while state.epoch < args.epochs:
            left = list(indices)  # this rank's part of what is left of the epoch
            if left:
                options = {"batch_size": args.batch, "shuffle": False, "verbose": 0}
                history = model.fit(images[left], labels[left], callbacks=callbacks, **options)
                if hvd.rank() == 0:
                    print(f"epoch {state.epoch + 1}: loss {history.history['loss'][-1]:.3f}", flush=True)
            state.epoch += 1
            indices.set_epoch(state.epoch)

    train(state)
    if hvd.rank() == 0:
        accuracy = model.evaluate(images[count:], labels[count:], verbose=0)[1]
        print(f"{accuracy:.1%} of the test images are recognised")


if __name__ == "__main__":
    main()
