"""The callbacks in two real processes that begin with different weights, rates and data: with Keras 3 on
TensorFlow and on torch, and with Keras 2.
"""

import hashlib
import importlib
import os

import numpy as np
import pytest

BATCH, STEPS, EPOCHS, RATE, MOMENTUM = 4, 5, 4, 0.08, 0.9
PACKAGES = {
    "run_ranks": ["horovod.tensorflow.keras", "keras"],
    "run_legacy_keras_ranks": ["horovod.tensorflow.keras", "tf_keras"],
    "run_torch_keras_ranks": ["horovod.keras", "keras"],
}
EVERY_KERAS = pytest.mark.parametrize("ranks", list(PACKAGES))


def train(request, ranks, function, *arguments):
    """The results of two ranks with one kind of Keras."""
    run = request.getfixturevalue(ranks)
    return run(2, function, [*PACKAGES[ranks], *arguments], timeout=240)


def data():
    """For both ranks: rank r has the rows [r]."""
    inputs = np.random.default_rng(3).normal(size=(2, STEPS * BATCH, 3)).astype("float32")
    return inputs, inputs @ np.array([[1.0], [-2.0], [0.5]], "float32")


def rank_fits(adapter, package, kind):
    """What this rank ends with, and its logs before and after they were averaged."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    layers = keras.layers

    class Late(keras.Model):
        """Its variables are made by its first use."""

        def __init__(self):
            super().__init__()
            self.parts = [layers.Dense(4), layers.Dropout(0.5), layers.Dense(1)]

        def call(self, inputs, training=None):
            hidden = self.parts[1](self.parts[0](inputs), training=training)
            return self.parts[2](hidden)

    plain = [layers.InputLayer((3,)), layers.Dense(1, use_bias=False)]
    model = Late() if kind == "late" else keras.Sequential(plain)
    optimizer = keras.optimizers.SGD(RATE * (1 + hvd.rank()), momentum=MOMENTUM)
    model.compile(hvd.DistributedOptimizer(optimizer), "mse", metrics=["mae"])
    start = [] if kind == "late" else np.asarray(model.get_weights()[0]).tolist()
    local, averaged, rates = [], [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate.numpy())))

    watch = keras.callbacks.LambdaCallback
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        watch(on_epoch_end=lambda epoch, logs: local.append(dict(logs))),
        hvd.callbacks.MetricAverageCallback(),
        watch(on_epoch_end=lambda epoch, logs: averaged.append(dict(logs))),
    ]
    if kind == "warm":
        callbacks.insert(1, hvd.callbacks.LearningRateWarmupCallback(RATE, warmup_epochs=3))
    inputs, targets = (both[hvd.rank()] for both in data())
    options = {"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
    model.fit(inputs, targets, callbacks=[*callbacks, Watch()], validation_split=0.0, **options)
    weights = [np.asarray(value) for value in model.get_weights()]
    return {
        "digest": hashlib.sha256(b"".join(value.tobytes() for value in weights)).hexdigest(),
        "start": start,
        "end": [value.tolist() for value in weights],
        "rates": rates,
        "local": local,
        "averaged": averaged,
    }


@EVERY_KERAS
def test_ranks_end_with_the_weights_of_one_process_on_all_data(request, ranks):
    results = train(request, ranks, rank_fits, "warm")
    assert results[0]["start"] != results[1]["start"]
    assert results[0]["digest"] == results[1]["digest"]
    passed = [epoch + (batch + 1) / STEPS for epoch in range(EPOCHS) for batch in range(STEPS)]
    expected = [RATE * (1 + min(e, 3) / 3) / 2 for e in passed]
    for result in results:
        np.testing.assert_allclose(result["rates"], expected, rtol=1e-6)
    inputs, targets = data()
    weights, velocity = np.array(results[0]["start"], "float64"), np.zeros((3, 1))
    for step, rate in enumerate(expected):
        rows = slice(step % STEPS * BATCH, step % STEPS * BATCH + BATCH)
        x, y = np.concatenate(inputs[:, rows]), np.concatenate(targets[:, rows])
        old = expected[max(step - 1, 0)]
        velocity = MOMENTUM * rate / old * velocity - rate * 2 / len(x) * x.T @ (x @ weights - y)
        weights = weights + velocity
    np.testing.assert_allclose(results[0]["end"][0], weights, rtol=1e-4, atol=1e-5)


@EVERY_KERAS
def test_a_late_model_and_the_rate_of_the_optimizer_become_rank_0s(request, ranks):
    results = train(request, ranks, rank_fits, "late")
    assert results[0]["digest"] == results[1]["digest"]
    np.testing.assert_allclose(results[0]["rates"], [RATE] * EPOCHS * STEPS, rtol=1e-6)
    np.testing.assert_allclose(results[1]["rates"][1:], [RATE] * (EPOCHS * STEPS - 1), rtol=1e-6)
    built_by_fit = ranks == "run_torch_keras_ranks"  # before training begins
    assert results[1]["rates"][0] == pytest.approx(RATE if built_by_fit else 2 * RATE)


@EVERY_KERAS
def test_metrics_are_averaged_as_by_hand(request, ranks):
    results = train(request, ranks, rank_fits, "warm")
    for epoch in range(EPOCHS):
        local = [result["local"][epoch] for result in results]
        assert local[0]["loss"] != local[1]["loss"]
        by_hand = {name: (local[0][name] + local[1][name]) / 2 for name in local[0]}
        assert sorted(by_hand) == ["loss", "lr", "mae"]
        for result in results:
            assert result["averaged"][epoch] == pytest.approx(by_hand, rel=1e-6)


def rank_keeps_the_best(adapter, package, folder):
    """Trains three epochs and one more: the same model, and another one that is loaded from the file."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.5)), "mse")
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = os.path.join(folder, f"{hvd.rank()}.keras")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        best,
    ]
    inputs, targets = (both[hvd.rank()] for both in data())
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    losses = model.fit(inputs, targets, callbacks=callbacks, epochs=3, **options).history["loss"]
    hvd.barrier()
    loaded, weights = hvd.load_model(os.path.join(folder, "0.keras")), []
    for one in (loaded, model):
        one.fit(inputs, targets, callbacks=callbacks[:2], **options)
        weights.append(np.asarray(one.get_weights()[0]).tolist())
    return {"files": sorted(os.listdir(folder)), "losses": losses, "weights": weights}


@EVERY_KERAS
def test_the_best_model_is_saved_once_and_training_goes_on_from_it(request, ranks, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    first, second = train(request, ranks, rank_keeps_the_best, str(folder))
    assert first == second
    assert first["files"] == ["0.keras"]
    assert first["losses"] == sorted(first["losses"], reverse=True)  # so the last epoch was the best
    loaded, never_saved = first["weights"]
    assert loaded == never_saved
