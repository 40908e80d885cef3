"""model.fit in two processes: our DistributedOptimizer, and the same models without communication.

horovodrun -np 2 python benchmarks/keras_train.py
TF_USE_LEGACY_KERAS=1 horovodrun -np 2 python benchmarks/keras_train.py

With Keras 3 there is nothing else to compare with: TensorFlow's MultiWorkerMirroredStrategy does not run
under it. With TF_USE_LEGACY_KERAS=1 the models are those of tf_keras, and it joins in. "compiled" has XLA
compile our steps, which takes TensorFlow 2.19. "alone" and "compiled alone" fit the same models at the same
time without exchanging gradients: the ceilings. XLA's convolutions on CPUs are slower than TensorFlow's own.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from keras_models import MODELS, data
from samples import OURS, Row, interleave, load
from session import Session, session

from horovod.common.collective.byte_objects import objects

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
MIRRORED = "mirrored strategy"
COMPILED = "compiled"
ALONE, COMPILED_ALONE = "alone", "compiled alone"
STEPS = 20

strategy: Any = None


@contextmanager
def tensorflow(_: Path, rank: int, size: int) -> Iterator[None]:
    """TensorFlow with one thread per rank, and its own servers where they are needed."""
    global strategy
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if LEGACY:
        with socket.socket() as probe:  # free now, and most probably a moment later
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        workers = objects.allgather_object(address)
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        os.environ["TF_CONFIG"] = json.dumps(cluster)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    yield


def prepared(make: Callable[[Any], Any], library: str) -> Any:
    """A model with the same weights everywhere."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    tf.keras.utils.set_random_seed(1)
    model = make(tf.keras)
    optimizer = tf.keras.optimizers.SGD(1e-3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer) if library in (OURS, COMPILED) else optimizer
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=library in (COMPILED, COMPILED_ALONE))
    return model


def fitter(
    run: Session, model: Any, inputs: np.ndarray, labels: np.ndarray, batch: int
) -> Callable[[], float]:
    """Fits one epoch of STEPS steps; seconds per step on the slowest rank, without the end of the epoch: on
    one core TensorFlow often waits there for some hundred milliseconds, whoever computes.
    """
    import tensorflow as tf

    ends: list[float] = []

    class Clock(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())

    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(batch).cache()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)

    def fit() -> float:
        ends.clear()
        run.board.barrier()
        model.fit(dataset, epochs=1, verbose=0, callbacks=[Clock()])
        return run.board.max((ends[-1] - ends[0]) / (STEPS - 1))

    return fit


def check(run: Session, model: Any) -> None:
    """The same bits on every rank."""
    digest = float(sum(float(np.asarray(weights, np.float64).sum()) for weights in model.get_weights()[:2]))
    if run.board.max(digest) != -run.board.max(-digest):
        raise AssertionError("the weights differ between ranks")


def measure(run: Session, name: str) -> None:
    make = MODELS[name][0]
    models, fits = {}, {}
    for library in [OURS, COMPILED, *([MIRRORED] if LEGACY else []), ALONE, COMPILED_ALONE]:
        inputs, labels, batch = data(name, STEPS, seed=run.rank)
        with strategy.scope() if library == MIRRORED else nullcontext():
            models[library] = prepared(make, library)
        if library == MIRRORED:  # its batch is that of all workers, of which each takes its part
            inputs, labels = np.repeat(inputs, run.size, axis=0), np.repeat(labels, run.size)
            batch *= run.size
        fits[library] = fitter(run, models[library], inputs, labels, batch)
        fits[library]()
    samplers = {library: (lambda fit=fit: [fit()]) for library, fit in fits.items()}
    times = interleave(samplers, run.rounds)
    check(run, models[OURS])
    kind = "tf_keras" if LEGACY else "keras"
    row = Row(kind, name, run.size, times, load())
    batch = MODELS[name][2] * run.size
    row.note = "samples/s: " + ", ".join(f"{library} {batch / row.median(library):.0f}" for library in times)
    run.rows.append(row)


def main() -> None:
    with session(__doc__.splitlines()[0], tensorflow) as run:
        for name in ["mlp"] if run.quick else MODELS:
            measure(run, name)


if __name__ == "__main__":
    main()
