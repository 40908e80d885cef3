"""The usual first script for Keras: a small CNN, Adam, three epochs; on a GPU where there is one.

horovodrun -np 2 python examples/tensorflow_tutorial.py
"""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow.keras as hvd


def load_data() -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits, enlarged from 8x8 to the 28x28 pixels of the well-known data set."""
    digits = load_digits()
    images = tf.image.resize(digits.images[..., None].astype("float32") / 16, (28, 28)).numpy()
    return images, digits.target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    args = parser.parse_args()

    hvd.init()

    # Each process has one GPU, that of its local rank.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    images, labels = load_data()
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.repeat().shuffle(2000, seed=hvd.rank()).batch(args.batch)

    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model.fit(
        data,
        steps_per_epoch=len(labels) // args.batch // hvd.size(),
        epochs=args.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
