"""Trains a small CNN on scikit-learn's handwritten digits with ``model.fit``, on any backend of Keras 3.

One process:    python examples/keras_digits.py
Two processes:  horovodrun -np 2 python examples/keras_digits.py
On torch:       KERAS_BACKEND=torch horovodrun -np 2 python examples/keras_digits.py

What made the single-process script distributed are the five places marked # 1. to # 5.
"""

import argparse
import hashlib
import os
import sys
import tempfile

import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd


def make_model() -> keras.Model:
    """For images of 8x8x1."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(48, 3, padding="same", activation="relu"),
            layers.Conv2D(96, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def load_data() -> tuple[np.ndarray, np.ndarray, int]:
    """Images and labels, in the same order on every rank, and how many of them are to train with."""
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images = digits.images[order, :, :, None].astype("float32") / 16
    return images, digits.target[order], len(order) * 4 // 5


def share(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """This rank's part of each, as long as that of every other rank."""
    return tuple(array[hvd.rank() :: hvd.size()][: len(array) // hvd.size()] for array in arrays)


def all_equal(model: keras.Model) -> bool:
    """Whether every bit of every weight is the same on all ranks."""
    weights = b"".join(np.ascontiguousarray(value).tobytes() for value in model.get_weights())
    digest = np.frombuffer(hashlib.sha256(weights).digest(), np.uint8)
    digests = np.asarray(hvd.allgather(digest[None], name="digest"))
    return bool((digests == digest).all())


def report(epoch: int, logs: dict[str, float]) -> None:
    """One line; the numbers are averages over all ranks."""
    accuracy, loss, rate = logs["val_accuracy"], logs["loss"], logs["lr"]
    print(f"epoch {epoch + 1:2}  loss {loss:.4f}  accuracy {accuracy:.1%}  rate {rate:.4f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.02, help="for one process")
    args = parser.parse_args()

    hvd.init()  # 1. Join the other processes.
    keras.utils.set_random_seed(hvd.rank())
    images, labels, train = load_data()
    model = make_model()

    # 2. Average the gradients of all processes in each step; the combined batch is larger, so is the rate.
    optimizer = keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])

    with tempfile.TemporaryDirectory() as folder:
        best = hvd.callbacks.BestModelCheckpoint(monitor="val_accuracy")
        best.filepath = os.path.join(folder, "best.keras")
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 3. Everybody starts from rank 0's weights.
            hvd.callbacks.MetricAverageCallback(),  # 4. Metrics are those of all processes.
            hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=2),
            hvd.callbacks.LearningRateScheduleCallback(multiplier=lambda epoch: 0.1 if epoch >= 6 else 1),
            best,
        ]
        if hvd.rank() == 0:
            callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=report))

        # 5. Each process trains on its own part of the data, in as many batches as the others.
        model.fit(
            *share(images[:train], labels[:train]),
            batch_size=args.batch,
            epochs=args.epochs,
            callbacks=callbacks,
            validation_data=share(images[train:], labels[train:]),
            verbose=0,
        )
        if hvd.rank() == 0:
            saved = hvd.load_model(best.filepath)
            accuracy = saved.evaluate(images[train:], labels[train:], verbose=0, return_dict=True)["accuracy"]
            print(f"the best model, saved and loaded again: accuracy {accuracy:.1%}")

    identical = all_equal(model)
    if hvd.rank() == 0:
        print(f"{hvd.size()} process(es), final weights {'bit-identical' if identical else 'DIFFER'}")
    hvd.shutdown()
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
