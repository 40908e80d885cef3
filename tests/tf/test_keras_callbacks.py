"""The callbacks in real runs of ``model.fit``, over a backend whose other ranks are made up."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_made_up_ranks import GENERATIONS, MadeUpRanks, generation, recorder

from horovod.elastic import notices

BATCH, STEPS = 4, 6
INPUTS = np.random.default_rng(7).normal(size=(BATCH * STEPS, 3)).astype("float32")
TARGETS = INPUTS @ np.array([[1.0], [-2.0], [0.5]], "float32")
EVERY_GENERATION = pytest.mark.parametrize("which", GENERATIONS)


def linear(of, optimizer, **compiling):
    """A model of one matrix of 3x1."""
    layers = [of.keras.layers.InputLayer((3,)), of.keras.layers.Dense(1, use_bias=False)]
    model = of.keras.Sequential(layers)
    model.compile(optimizer, "mse", **compiling)
    return model


def fit(model, callbacks, epochs=1, **options):
    """In batches that are not shuffled."""
    arguments = {"batch_size": BATCH, "epochs": epochs, "shuffle": False, "verbose": 0, **options}
    return model.fit(INPUTS, TARGETS, callbacks=callbacks, **arguments).history


@EVERY_GENERATION
@pytest.mark.parametrize("given", [None, 0.5])
def test_warmup_has_the_formulas_rate_in_every_step(which, given, capsys):
    ranks, warmup, epochs, rate = 4, 3, 5, given or 0.08
    of = generation(which, MadeUpRanks(ranks))
    record = recorder(of.keras)
    model = linear(of, of.optimizers.SGD(0.08, momentum=0.9))
    history = fit(model, [of.Warmup(given, warmup_epochs=warmup, verbose=1), record], epochs)
    passed = [epoch + (batch + 1) / STEPS for epoch in range(epochs) for batch in range(STEPS)]
    expected = [rate * (1 + min(e, warmup) * (ranks - 1) / warmup) / ranks for e in passed]
    np.testing.assert_allclose(record.rates, expected, rtol=1e-6)
    np.testing.assert_allclose(history["lr"], expected[STEPS - 1 :: STEPS], rtol=1e-6)
    assert [line for line in capsys.readouterr().out.splitlines() if line] == [
        f"Epoch 3: the warm-up is over, the learning rate is {rate:g}."
    ]


@EVERY_GENERATION
@pytest.mark.parametrize("warmup_first", [True, False])
def test_a_schedule_leaves_the_rate_alone_during_a_warmup(which, warmup_first):
    of = generation(which, MadeUpRanks(2))
    record = recorder(of.keras)
    both = [of.Warmup(warmup_epochs=2), of.Schedule(multiplier=0.5, start_epoch=1)]
    fit(linear(of, of.optimizers.SGD(0.1)), [*both[:: 1 if warmup_first else -1], record], 4)
    warm = [0.1 * (1 + (step + 1) / STEPS / 2) / 2 for step in range(2 * STEPS)]
    np.testing.assert_allclose(record.rates, warm + [0.05] * STEPS + [0.025] * STEPS, rtol=1e-6)


def test_the_warmup_of_an_earlier_training_is_over():
    of = generation("keras", MadeUpRanks(2))
    model = linear(of, of.optimizers.SGD(0.1))
    fit(model, [of.Warmup(warmup_epochs=1)])
    record = recorder(of.keras)
    fit(model, [of.Schedule(0.1, multiplier=lambda epoch: 3), record])
    np.testing.assert_allclose(record.rates, [0.3] * STEPS, rtol=1e-6)


@EVERY_GENERATION
def test_a_smooth_schedule_sees_fractions_of_epochs(which):
    of = generation(which, MadeUpRanks())
    record = recorder(of.keras)
    schedule = of.Schedule(2.0, lambda epoch: 1 / (1 + epoch), start_epoch=1, end_epoch=3, staircase=False)
    fit(linear(of, of.optimizers.SGD(0.1)), [schedule, record], 4)
    smooth = [2 / (2 + step / STEPS) for step in range(2 * STEPS)]
    np.testing.assert_allclose(record.rates, [0.1] * STEPS + smooth + [smooth[-1]] * STEPS, rtol=1e-6)


def test_a_stepwise_schedule_sees_whole_epochs():
    of = generation("keras", MadeUpRanks())
    record, seen = recorder(of.keras), []
    schedule = of.Schedule(multiplier=lambda epoch: seen.append(epoch) or 10.0**-epoch)
    fit(linear(of, of.optimizers.SGD(0.1)), [schedule, record], 3)
    assert seen == [0, 1, 2]
    np.testing.assert_allclose(record.rates, np.repeat([0.1, 0.01, 0.001], STEPS), rtol=1e-6)


def sgd_by_hand(rates, momentum, correct, weights):
    """The weights after training with the given rate in each step."""
    velocity, old = np.zeros_like(weights), rates[0]
    for step, rate in enumerate(rates):
        rows = slice(step % STEPS * BATCH, step % STEPS * BATCH + BATCH)
        gradient = 2 / BATCH * INPUTS[rows].T @ (INPUTS[rows] @ weights - TARGETS[rows])
        velocity = (momentum * rate / old if correct else momentum) * velocity - rate * gradient
        weights, old = weights + velocity, rate
    return weights


@EVERY_GENERATION
@pytest.mark.parametrize("correct", [True, False])
def test_momentum_is_corrected_in_compiled_steps(which, correct):
    of = generation(which, MadeUpRanks(8))
    model = linear(of, of.optimizers.SGD(0.05, momentum=0.9))
    start = model.get_weights()[0]
    record = recorder(of.keras)
    change = [of.Warmup(0.05, 2, correct), of.Schedule(0.05, 0.1, 2, momentum_correction=correct)]
    fit(model, [*change, record], 4)
    trained = [sgd_by_hand(record.rates, 0.9, kind, start) for kind in (correct, not correct)]
    np.testing.assert_allclose(model.get_weights()[0], trained[0], rtol=1e-4, atol=1e-5)
    assert np.abs(trained[0] - trained[1]).max() > 0.01


@pytest.mark.parametrize("which", GENERATIONS)
@pytest.mark.parametrize(("kind", "has"), [("RMSprop", True), ("Adam", False)])
def test_only_velocities_that_contain_the_rate_are_scaled(which, kind, has):
    of = generation(which, MadeUpRanks())
    optimizer = getattr(of.optimizers, kind)(0.1, **({"momentum": 0.9} if has else {}))
    model = linear(of, optimizer)
    fit(model, [])
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    before = [variable.numpy() for variable in variables]
    schedule = of.Schedule(0.1, lambda epoch: 0.5)
    schedule.set_params({"steps": STEPS})
    schedule.set_model(model)
    schedule.on_train_begin()
    schedule.on_batch_begin(0)
    scaled = [
        value.shape == (3, 1) and np.allclose(variable.numpy(), value / 2)
        for variable, value in zip(variables, before, strict=True)
    ]
    assert sum(scaled) == has


@pytest.mark.parametrize("which", ["keras", "tf_keras"])
def test_the_rate_below_loss_scaling_is_set(which):
    of = generation(which, MadeUpRanks(2))
    scaling = of.keras.optimizers.LossScaleOptimizer if which == "keras" else None
    scaling = scaling or of.keras.mixed_precision.LossScaleOptimizer
    record = recorder(of.keras)
    fit(linear(of, scaling(of.optimizers.SGD(0.1, momentum=0.9))), [of.Schedule(multiplier=2), record], 2)
    np.testing.assert_allclose(record.rates, [0.1] * STEPS + [0.2] * STEPS, rtol=1e-6)


@EVERY_GENERATION
@pytest.mark.parametrize("kind", ["Schedule", "Warmup"])
def test_a_schedule_of_keras_is_refused(which, kind):
    of = generation(which, MadeUpRanks())
    decay = of.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    model = linear(of, of.optimizers.SGD(decay))
    with pytest.raises(
        ValueError, match=r"SGD optimizer is a LearningRateSchedule.*Give the optimizer a number"
    ):
        fit(model, [getattr(of, kind)()])


@pytest.mark.parametrize("kind", ["Schedule", "Warmup"])
def test_an_elastic_job_must_say_the_initial_rate(kind, monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    of = generation("keras", MadeUpRanks())
    model = linear(of, of.optimizers.SGD(0.1))
    fit(model, [getattr(of, kind)()])  # a program without hvd.elastic.run begins once
    monkeypatch.setattr(notices, "_listeners", [object()])
    with pytest.raises(ValueError, match=r"Callback needs initial_lr in an elastic job"):
        fit(model, [getattr(of, kind)()])
    fit(model, [getattr(of, kind)(initial_lr=0.1)])


def test_an_unknown_number_of_batches_is_an_error_unless_given():
    of = generation("keras", MadeUpRanks(2))
    rows = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(BATCH)
    model = linear(of, of.optimizers.SGD(0.1))
    unknown = rows.filter(lambda x, y: True)
    for schedule in (of.Warmup(), of.Schedule(multiplier=lambda epoch: 1, staircase=False)):
        with pytest.raises(ValueError, match="give it steps_per_epoch"):
            model.fit(unknown, callbacks=[schedule], verbose=0)
    record = recorder(of.keras)
    model.fit(unknown, callbacks=[of.Warmup(warmup_epochs=1, steps_per_epoch=STEPS), record], verbose=0)
    np.testing.assert_allclose(
        record.rates[:STEPS], [0.05 + 0.05 * (n + 1) / STEPS for n in range(STEPS)], rtol=1e-6
    )


def test_a_negative_warmup_is_an_error():
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        generation("keras", MadeUpRanks()).Warmup(warmup_epochs=-1)


@EVERY_GENERATION
def test_metrics_are_averaged_as_by_hand(which):
    backend = MadeUpRanks(3, others=lambda name, value: [value + 1, value + len(name)])
    of = generation(which, backend)
    local, seen = {}, {}
    watch = of.keras.callbacks.LambdaCallback
    callbacks = [
        watch(on_epoch_end=lambda epoch, logs: local.update(logs)),
        of.Average(),
        watch(on_epoch_end=lambda epoch, logs: seen.update(logs)),
    ]
    validation = (INPUTS[:8], TARGETS[:8])
    history = fit(linear(of, "sgd", metrics=["mae"]), callbacks, validation_data=validation)
    assert sorted(local) == ["loss", "mae", "val_loss", "val_mae"]
    by_hand = {name: (value + (value + 1) + (value + len(name))) / 3 for name, value in local.items()}
    assert seen == pytest.approx(by_hand, rel=1e-6)
    assert {name: values[0] for name, values in history.items()} == seen
    assert backend.events == [("mean", sorted(local))]


def test_averages_keep_the_kind_of_number():
    average = generation("keras", MadeUpRanks(2, others=lambda name, value: [value + 1])).Average()
    logs = {
        "python": 0.5,
        "single": np.float32(0.5),
        "double": np.float64(0.5),
        "count": 3,
        "scalar": tf.constant(2.0),
        "words": "as they are",
        "matrix": np.eye(2),
    }
    average.on_epoch_end(0, logs)
    kinds = {name: type(logs[name]) for name in ("python", "single", "double", "count", "scalar")}
    assert list(kinds.values()) == [float, np.float32, np.float64, float, np.float32]
    assert [logs[name] for name in kinds] == [1.0, 1.0, 1.0, 3.5, 2.5]
    assert logs["words"] == "as they are"
    np.testing.assert_array_equal(logs["matrix"], np.eye(2))
    average.on_epoch_end(0, None)


@pytest.mark.parametrize(("own", "saves"), [(0, True), (1, False)])
def test_rank_0_alone_saves_the_best_model(tmp_path, monkeypatch, own, saves):
    monkeypatch.chdir(tmp_path)
    best = generation("keras", MadeUpRanks(2, own)).BestModel("loss", mode="min")
    kept, losses = [], iter([3.0, 1.0, 2.0])
    keep = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: kept.append(model.get_weights()[0]))
    judge = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: logs.update(loss=next(losses)))
    model = linear(generation("keras", MadeUpRanks()), "sgd")
    fit(model, [judge, best, keep], 3)
    assert [path.name for path in tmp_path.iterdir()] == ["best_model.keras"] * saves
    if saves:
        loaded = keras.models.load_model("best_model.keras").get_weights()[0]
        np.testing.assert_array_equal(loaded, kept[1])
        assert not np.array_equal(loaded, kept[2])
