"""Optimizers of Keras 3 are made, saved and loaded with their configuration and state."""

import copy
import pickle

import keras
import numpy as np
import pytest
from keras_optimizers import DIFFERENT, OPTIMIZERS, by_hand, echoing, fit, net, numbers, states

import horovod.tensorflow.keras as hvd

THE_DIFFERENT = pytest.mark.parametrize("kind", DIFFERENT)


@pytest.fixture(autouse=True)
def alone():
    hvd.init()


@THE_DIFFERENT
def test_alone_it_is_the_plain_optimizer(kind):
    plain, ours = (fit(net(), wrap(OPTIMIZERS[kind]())) for wrap in (lambda o: o, hvd.DistributedOptimizer))
    assert (states(ours) == states(plain)).all()


@THE_DIFFERENT
def test_class_and_configuration(kind):
    plain = OPTIMIZERS[kind]()
    ours = echoing(plain)
    assert type(ours).__name__ == type(plain).__name__
    assert isinstance(ours, type(plain))
    assert ours.get_config() == plain.get_config()
    again = ours.from_config(ours.get_config())
    assert type(again) is type(ours)
    assert again.get_config() == plain.get_config()
    assert type(keras.optimizers.deserialize(keras.optimizers.serialize(ours))) is type(plain)


def test_what_from_config_makes_reduces_too():
    first = echoing(keras.optimizers.SGD(0.1))
    model = fit(net(), first.from_config(first.get_config()))
    assert (states(model) == states(fit(net(), first))).all()


@THE_DIFFERENT
def test_state_is_carried_over(kind):
    """Wrapped in the middle of training, it goes on as if it had been wrapped before."""
    make = OPTIMIZERS[kind]
    whole, halves = fit(net(), make(), epochs=2), fit(net(), make())
    middle = halves.optimizer
    halves.compile(hvd.DistributedOptimizer(middle), "mse", run_eagerly=True)
    assert (numbers(halves.optimizer.variables) == numbers(middle.variables)).all()
    assert (states(fit(halves)) == states(whole)).all()
    assert int(middle.iterations) < int(halves.optimizer.iterations)  # a copy


@THE_DIFFERENT
def test_saved_and_loaded(kind, tmp_path):
    path = tmp_path / "model.keras"
    model = fit(net(), hvd.DistributedOptimizer(OPTIMIZERS[kind]()))
    model.save(path)
    plain, ours = keras.models.load_model(path), hvd.load_model(path)
    assert not isinstance(plain.optimizer, type(model.optimizer).__mro__[1])
    assert isinstance(ours.optimizer, type(model.optimizer).__mro__[1])
    for loaded in (plain, ours):
        assert (states(loaded) == states(model)).all()
    ours.save(tmp_path / "again.keras")
    again = hvd.load_model(tmp_path / "again.keras")
    expected = states(fit(model))
    for loaded in (plain, ours, again):
        np.testing.assert_array_equal(states(fit(loaded)), expected)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@THE_DIFFERENT
def test_a_copy_is_the_plain_optimizer_and_says_so(kind, how):
    ours = fit(net(), hvd.DistributedOptimizer(OPTIMIZERS[kind]())).optimizer
    with pytest.warns(UserWarning, match="which reduces nothing"):
        plain = copy.deepcopy(ours) if how == "deepcopy" else pickle.loads(pickle.dumps(ours))
    assert type(plain) is type(OPTIMIZERS[kind]())
    assert plain.get_config() == ours.get_config()


@pytest.mark.parametrize("kind", [".keras", ".h5"])
@pytest.mark.parametrize("make", ["adam", "schedule", "loss scale"])
def test_passes_are_taken_up_again(make, kind, tmp_path):
    """A file counts updates, so that whatever loads it goes on with the right number of them."""
    passes = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    model = net()
    loss = keras.losses.MeanSquaredError()  # Keras cannot load one by name from a file of this kind
    model.compile(hvd.DistributedOptimizer(OPTIMIZERS[make](), **passes), loss, run_eagerly=True)
    fit(model).save(tmp_path / f"model{kind}")
    assert int(model.optimizer.iterations) == 2
    if kind == ".keras":  # from the other Keras itself takes no state for variables in layers
        assert int(keras.models.load_model(tmp_path / "model.keras").optimizer.iterations) == 2
    ours = hvd.load_model(tmp_path / f"model{kind}", **passes)
    assert int(ours.optimizer.iterations) == 2
    assert float(ours.optimizer.learning_rate) == float(model.optimizer.learning_rate)
    np.testing.assert_allclose(states(fit(ours)), states(fit(model)), rtol=1e-5, atol=1e-8)
    assert int(ours.optimizer.iterations) == int(model.optimizer.iterations) == 4


def test_wrapped_with_passes_in_the_middle_of_training():
    plain = fit(net(), keras.optimizers.Adam())
    ours = hvd.DistributedOptimizer(plain.optimizer, backward_passes_per_step=2)
    assert int(ours.iterations) == int(plain.optimizer.iterations) == 4


def test_load_model_without_optimizer(tmp_path):
    net().save(tmp_path / "model.keras")
    assert getattr(hvd.load_model(tmp_path / "model.keras"), "optimizer", None) is None


def test_legacy_optimizers_need_keras_2(tmp_path):
    with pytest.raises(ValueError, match="TF_USE_LEGACY_KERAS=1"):
        hvd.load_model(tmp_path / "model.keras", legacy_opts=True)


@keras.saving.register_keras_serializable("mine")
class Registered(keras.optimizers.SGD):
    pass


class Unregistered(keras.optimizers.SGD):
    pass


BY_NAME = {"custom_objects": {"Unregistered": Unregistered}}


@pytest.mark.parametrize(
    ("kind", "plain_options", "options"),
    [
        (Registered, {}, {}),
        (Unregistered, BY_NAME, BY_NAME),
        (Unregistered, BY_NAME, {"custom_optimizers": [Unregistered]}),
    ],
)
def test_own_classes(kind, plain_options, options, tmp_path):
    model = fit(net(), hvd.DistributedOptimizer(kind(0.1, momentum=0.9)))
    model.save(tmp_path / "model.keras")
    plain = keras.models.load_model(tmp_path / "model.keras", **plain_options)
    ours = hvd.load_model(tmp_path / "model.keras", **options)
    assert type(plain.optimizer) is kind
    assert type(ours.optimizer) is not kind
    assert isinstance(ours.optimizer, kind)
    expected = states(fit(model))
    assert (states(fit(plain)) == expected).all()
    assert (states(fit(ours)) == expected).all()


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """As tutorials write them: without a configuration, and unknown to Keras by name."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def __call__(self, step):
        return self.start * 0.5 ** keras.ops.cast(step, "float32")


@pytest.mark.parametrize("scaled", [False, True])
def test_a_schedule_without_configuration(scaled):
    plain = keras.optimizers.SGD(Halving(1.0))
    ours = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(plain) if scaled else plain)
    assert isinstance(plain._learning_rate, Halving)
    inner = ours.inner_optimizer if scaled else ours
    variable = keras.Variable(0.0)
    inner.build([variable])
    for expected in (-1.0, -1.5, -1.75):
        inner.apply([keras.ops.convert_to_tensor(1.0)], [variable])
        assert float(variable.numpy()) == expected


def test_a_rate_that_is_a_function():
    ours = fit(net(), echoing(keras.optimizers.SGD(lambda: 0.1)))
    plain = fit(net(), by_hand(keras.optimizers.SGD(0.1)))
    np.testing.assert_allclose(numbers(ours.weights), numbers(plain.weights), rtol=1e-5, atol=1e-6)


def test_exclusions_from_weight_decay():
    model, plain = net(), keras.optimizers.AdamW(0.01, weight_decay=0.5)
    plain.exclude_from_weight_decay(var_names=["bias"])
    expected = fit(model, by_hand(plain))
    ours = keras.optimizers.AdamW(0.01, weight_decay=0.5)
    ours.exclude_from_weight_decay(var_names=["bias"])
    np.testing.assert_allclose(
        numbers(fit(net(), echoing(ours)).weights), numbers(expected.weights), rtol=1e-6
    )


def test_an_unfinished_step_is_not_saved(tmp_path):
    ours = hvd.DistributedOptimizer(keras.optimizers.Adam(), backward_passes_per_step=3)
    fit(net(), ours, rows=(0, 6)).save(tmp_path / "model.keras")
    assert int(ours._agg_helper.counter) == 1
    assert len(keras.models.load_model(tmp_path / "model.keras").optimizer.variables) == len(ours.variables)
