"""A custom training loop for TensorFlow, with the step compiled by ``tf.function``.

horovodrun -np 2 python examples/tensorflow_tape.py
"""

import argparse
import hashlib
import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd


def make_model() -> tf.keras.Model:
    """For images of 8x8x1."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            layers.Conv2D(48, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def load_data(batch: int) -> tuple[tf.data.Dataset, tuple[np.ndarray, np.ndarray]]:
    """This rank's part of what to train with, in batches, as many on every rank; and of what to test with."""
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = digits.images[order, :, :, None].astype("float32") / 16, digits.target[order]
    test, train = slice(hvd.rank(), 360, hvd.size()), slice(360 + hvd.rank(), None, hvd.size())
    steps = (len(order) - 360) // hvd.size() // batch
    data = tf.data.Dataset.from_tensor_slices((images[train], labels[train]))
    return data.shuffle(len(order), seed=hvd.rank()).batch(batch).take(steps), (images[test], labels[test])


def digest(model: tf.keras.Model) -> str:
    """Equal on two ranks only if every bit of every weight is."""
    return hashlib.sha256(b"".join(value.tobytes() for value in model.get_weights())).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.03, help="for one process")
    args = parser.parse_args()

    hvd.init()
    tf.keras.utils.set_random_seed(hvd.rank())
    data, (test_images, test_labels) = load_data(args.batch)
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The mean loss of the batch of this rank."""
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)  # its gradients are averaged over the ranks
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    hvd.broadcast_variables(model.weights, root_rank=0)  # the optimizer's are still zero everywhere
    for epoch in range(1, args.epochs + 1):
        losses = [train_step(images, labels) for images, labels in data]
        loss = hvd.allreduce(tf.reduce_mean(losses), name="loss")
        right = tf.math.count_nonzero(tf.argmax(model(test_images), axis=1) == test_labels)
        accuracy = hvd.allreduce(right, name="right", op=hvd.Sum) / 360
        if hvd.rank() == 0:
            print(f"epoch {epoch:2}  loss {loss:.4f}  accuracy {float(accuracy):.1%}", flush=True)

    identical = len(set(hvd.allgather_object(digest(model)))) == 1
    if hvd.rank() == 0:
        print(f"{hvd.size()} process(es), final weights {'bit-identical' if identical else 'DIFFER'}")
    hvd.shutdown()
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
