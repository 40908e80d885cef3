"""The collectives of the Keras adapters on values, and errors inside of ``fit``, in two processes."""

import importlib

import numpy as np
import pytest
from test_keras_fit_ranks import EVERY_KERAS, RANKS, Training, together


def rank_exchanges_values(adapter, package):
    hvd = importlib.import_module(adapter)
    hvd.init()
    rank, keras = hvd.rank(), importlib.import_module(package)

    def same(tensor, expected):
        found = np.asarray(tensor.numpy())
        assert found.tolist() == expected, (found, expected)

    variable = keras.Variable([float(rank)]) if hasattr(keras, "Variable") else tf_variable(rank)
    same(hvd.allreduce(variable), [0.5])
    for value in (1.0 + rank, np.float32(1 + rank)):
        same(hvd.allreduce(value), 1.5)
    same(hvd.allreduce([1.0, rank], op=hvd.Sum), [2.0, 1.0])
    same(hvd.allreduce(np.array([2, 4 * rank]), "named", op=hvd.Max), [2, 4])
    same(hvd.allreduce(1.0, prescale_factor=2.0, postscale_factor=3.0), 6.0)
    same(hvd.allreduce(0.5, compression=hvd.Compression.fp16), 0.5)
    with pytest.warns(DeprecationWarning):
        same(hvd.allreduce(1.0, average=False), 2.0)
    same(hvd.allgather([rank] * (rank + 1)), [0, 1, 1])
    same(hvd.allgather(rank), [0, 1])
    same(hvd.broadcast(np.array([rank, 7]), 1), [1, 7])
    same(hvd.reducescatter(np.array([[2.0], [4.0 * rank]])), [[2.0]])
    same(hvd.reducescatter(np.array([1.0, 1.0, 1.0]), op=hvd.Sum), [2.0, 2.0] if rank == 0 else [2.0])
    assert hvd.metric.get_global_mean(rank) == 0.5
    assert hvd.broadcast_object({"rank": rank}) == {"rank": 0}
    assert hvd.allgather_object(rank) == [0, 1]
    hvd.broadcast_variables([variable], 1)
    assert np.asarray(variable.numpy()).tolist() == [1.0]
    hvd.barrier()
    assert int(hvd.join()) in range(RANKS)
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


def tf_variable(rank):
    import tensorflow as tf

    return tf.Variable([float(rank)])


@EVERY_KERAS
def test_values(request, ranks):
    together(request, ranks, rank_exchanges_values)


def rank_has_xla_compile(adapter, package):
    job = Training(adapter, package)
    model = job.model()
    model.compile(job.hvd.DistributedOptimizer(job.optimizers.SGD(0.1)), "mse", jit_compile=True)
    job.check(job.fit(model), job.alone(job.optimizers.SGD(0.1)))


@pytest.mark.parametrize("ranks", ["run_ranks", "run_legacy_keras_ranks"])
def test_xla(request, ranks):
    together(request, ranks, rank_has_xla_compile)


def rank_writes_the_loop(adapter, package):
    """Training in a tf.function of the program's own, also of two models whose optimizers are alike."""
    import tensorflow as tf

    job = Training(adapter, package)
    models = [job.model(seed) for seed in (1, 2)]
    optimizers = [job.hvd.DistributedOptimizer(job.optimizers.Adam(0.05)) for _ in models]

    @tf.function
    def step(inputs, targets):
        for model, optimizer in zip(models, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for inputs, targets in zip(job.inputs, job.targets, strict=True):
        step(inputs[job.hvd.rank()], targets[job.hvd.rank()])
    for seed, model in zip((1, 2), models, strict=True):
        expected = job.fit(job.model(seed), job.optimizers.Adam(0.05), ranks=[0, 1], epochs=1)
        job.check(model, expected)


@pytest.mark.parametrize("ranks", ["run_ranks", "run_legacy_keras_ranks"])
def test_own_loop(request, ranks):
    together(request, ranks, rank_writes_the_loop)


def rank_differs(adapter, package):
    """The ranks train models of different shapes."""
    job = Training(adapter, package)
    model = job.keras.Sequential([job.keras.Input((3,)), job.keras.layers.Dense(1 + job.hvd.rank())])
    model.compile(job.hvd.DistributedOptimizer(job.optimizers.SGD(0.1)), "mse")
    try:
        model.fit(np.ones((2, 3)), np.ones((2, 1 + job.hvd.rank())), verbose=0)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


@EVERY_KERAS
def test_a_disagreement_in_fit(request, ranks):
    results = together(request, ranks, rank_differs)
    kinds = {"FailedPreconditionError", "TensorMismatchError"}
    for kind, text in results:
        assert kind in kinds, text
        assert "DistributedSGD" in text
        assert "rank 0" in text and "rank 1" in text


def rank_dies_in_fit(adapter, package):
    """Rank 1 is killed in the second step."""
    import os
    import signal

    job = Training(adapter, package)

    class Death(job.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if job.hvd.rank() == 1 and batch == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    model = job.model()
    model.compile(job.hvd.DistributedOptimizer(job.optimizers.SGD(0.1)), "mse")
    data = [job.rows(array, [job.hvd.rank()], (0, 3)) for array in (job.inputs, job.targets)]
    try:
        model.fit(*data, batch_size=4, callbacks=[Death()], verbose=0)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


@EVERY_KERAS
def test_a_death_in_fit(request, ranks):
    kind, text = together(request, ranks, rank_dies_in_fit, dies=[1])[0]
    assert kind in {"UnknownError", "HorovodInternalError"}, text
    assert "rank 1" in text.lower()
