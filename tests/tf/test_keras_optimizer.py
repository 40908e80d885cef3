"""What optimizers of Keras 3 do with gradients, on a backend with made-up ranks."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_optimizers import (
    OPTIMIZERS,
    RANKS,
    Echo,
    by_hand,
    echoing,
    fit,
    given_times,
    net,
    numbers,
    scaled,
    schedule,
    states,
)

import horovod.tensorflow.keras as hvd

EVERY = pytest.mark.parametrize("kind", OPTIMIZERS)


@pytest.fixture(autouse=True)
def alone():
    hvd.init()
    yield
    keras.config.set_dtype_policy("float32")


@EVERY
def test_gradients_are_reduced_before_anything_else(kind):
    make = OPTIMIZERS[kind]
    plain = fit(net(), by_hand(make()), epochs=2)
    ours = fit(net(), echoing(make()), epochs=2, run_eagerly=False)
    np.testing.assert_allclose(states(ours), states(plain), rtol=1e-5, atol=1e-6)
    assert not np.allclose(states(ours), states(fit(net(), make(), epochs=2)))


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adam", "clipnorm", "average", "loss scale", "muon"])
def test_backward_passes(kind, average):
    """As one step on the rows of both passes, of whose mean loss each pass has half."""
    passes = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
    ours = echoing(OPTIMIZERS[kind](), **passes)
    model = fit(net(), ours, batch_size=3, epochs=2, run_eagerly=False)
    factor = RANKS if average else 2 * RANKS
    plain = given_times(OPTIMIZERS[kind](), factor)
    expected = fit(net(), plain, batch_size=6, epochs=2)
    np.testing.assert_allclose(numbers(model.weights), numbers(expected.weights), rtol=1e-5, atol=1e-6)
    assert int(ours.iterations) == int(plain.iterations) == 8
    assert int(ours._agg_helper.counter) == 0


def test_schedules_see_every_pass():
    ours = echoing(keras.optimizers.SGD(schedule()), backward_passes_per_step=2)
    fit(net(), ours, batch_size=6)
    assert float(ours.learning_rate) == pytest.approx(float(schedule()(4)))
    assert int(ours.iterations) == 2


def test_one_pass_needs_no_sums():
    assert echoing(keras.optimizers.SGD())._agg_helper is None


def gradients_of_ones(optimizer, variables, **changes):
    optimizer.apply([changes.get(v.name, tf.ones(v.shape)) for v in variables], variables)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("layers", [False, True])
def test_local_variables(scale, layers):
    model = net()
    before = model.get_weights()
    backend = Echo()
    local = {"local_layers": [model.get_layer("first")]} if layers else {}
    ours = echoing(keras.optimizers.SGD(1.0), backend, scale_local_gradients=scale, **local)
    if not layers:
        for variable in model.get_layer("first").trainable_variables:
            ours.register_local_var(variable.value)  # the tf.Variable inside means the same
    gradients_of_ones(ours, model.trainable_variables)
    steps = [old - new for old, new in zip(before, model.get_weights(), strict=True)]
    own = 1 / RANKS if scale else 1.0
    for step, expected in zip(steps, [own, own, RANKS, RANKS], strict=True):
        np.testing.assert_allclose(step, expected, rtol=1e-5)
    assert backend.seen == [[v.path for v in model.get_layer("last").trainable_variables]]


def test_local_layers_that_are_built_later():
    layer = keras.layers.Dense(2)
    ours = echoing(keras.optimizers.SGD(1.0), local_layers=layer, scale_local_gradients=False)
    layer.build((None, 3))
    before = numbers(layer.weights)
    gradients_of_ones(ours, layer.trainable_variables)
    np.testing.assert_allclose(before - numbers(layer.weights), 1.0, rtol=1e-6)


def test_missing_gradients_stay_missing():
    model = net()
    before = model.get_weights()
    ours = echoing(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        for _ in range(2):
            gradients_of_ones(ours, model.trainable_variables[:2], bias=None)
    np.testing.assert_allclose(before[0] - model.get_weights()[0], 2 * RANKS, rtol=1e-5)
    assert (before[1] == model.get_weights()[1]).all()


@pytest.mark.parametrize("missing", [0, 1], ids=["in the first pass", "in the last pass"])
def test_a_gradient_that_one_pass_lacks(missing):
    """The other pass has one, which neither gets lost nor is part of the next step."""
    variables = [keras.Variable([1.0, 2.0], name="always"), keras.Variable([3.0], name="once")]
    ours = echoing(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    for number in (1, 2):
        for current in range(2):
            gradients_of_ones(ours, variables, **({"once": None} if current == missing else {}))
        np.testing.assert_allclose(variables[0], np.array([1, 2]) - 2 * RANKS * number)
        np.testing.assert_allclose(variables[1], [3.0 - RANKS * number])


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_step_that_fails_leaves_nothing_to_the_next(in_graph):
    variable, may_fail = keras.Variable([1.0, 2.0]), tf.Variable(False)
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([8], [1.0, 9.0])
    ours = echoing(keras.optimizers.SGD(rate), backward_passes_per_step=2)
    ours.build([variable])
    update = ours.update_step

    def update_or_fail(gradient, given, rate):
        with tf.control_dependencies([tf.debugging.assert_equal(may_fail, False)]):
            update(tf.identity(gradient), given, rate)

    ours.update_step = update_or_fail
    apply = (tf.function if in_graph else lambda function: function)(ours.apply)
    for fails in (False, True, False):
        may_fail.assign(fails)
        apply([tf.ones(2)])
        with pytest.raises(tf.errors.InvalidArgumentError) if fails else contextlib.nullcontext():
            apply([tf.ones(2)])
    np.testing.assert_allclose(variable, np.array([1, 2]) - 2 * 2 * RANKS)


def test_apply_without_variables():
    variable = keras.Variable([1.0, 2.0])
    ours = echoing(keras.optimizers.SGD(1.0))
    with pytest.raises(ValueError, match="must already be built"):
        ours.apply([tf.ones(2)])
    ours.build([variable])
    ours.apply([tf.ones(2)])
    np.testing.assert_allclose(variable.numpy(), [1.0 - RANKS, 2.0 - RANKS])
    ours.apply([])
    assert int(ours.iterations) == 1


class Overflowing(Echo):
    """Another rank has found infinity."""

    def reduce_gradients(self, gradients, variables, settings):
        return [gradient * float("inf") for gradient in gradients]


def test_loss_scaling_judges_what_all_ranks_have():
    model = net()
    before = model.get_weights()
    ours = echoing(scaled(keras.optimizers.SGD(0.1)), Overflowing())
    fit(model, ours)
    assert float(ours.dynamic_scale) == 4.0 / 2**4
    assert int(ours.iterations) == 0
    assert all((old == new).all() for old, new in zip(before, model.get_weights(), strict=True))


def test_mixed_precision_scales_the_right_way_round():
    keras.config.set_dtype_policy("mixed_float16")
    ours = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
    plain = fit(net(), keras.optimizers.SGD(0.01, momentum=0.9))
    model = fit(net(), ours)
    assert model.optimizer is ours
    assert type(ours).__name__ == type(plain.optimizer).__name__ == "LossScaleOptimizer"
    assert (states(model) == states(plain)).all()


def test_loops_that_do_not_scale_are_not_unscaled():
    keras.config.set_dtype_policy("mixed_float16")
    variable = keras.Variable([1.0, 2.0])
    ours = echoing(keras.optimizers.SGD(1.0))
    ours.apply_gradients([(tf.ones(2), variable)])
    np.testing.assert_allclose(variable.numpy(), [1.0 - RANKS, 2.0 - RANKS])


@pytest.mark.parametrize("by_compile", [False, True])
def test_loss_scaling_around_is_refused(by_compile):
    ours = echoing(keras.optimizers.SGD())
    model = net()
    if by_compile:
        model.dtype_policy = keras.DTypePolicy("mixed_float16")
        model.compile(ours, "mse")
    else:
        model.compile(keras.optimizers.LossScaleOptimizer(ours), "mse")
    with pytest.raises(ValueError, match=r"DistributedOptimizer\(keras.optimizers.LossScaleOptimizer"):
        fit(model)


def test_a_graph_that_is_kept_asks_for_the_number_of_ranks(monkeypatch):
    """Of an elastic job: it divides the gradient of a rank's own variable by those that there are then."""
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    variable = keras.Variable(np.ones(2, "float32"))
    ours = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    ours.register_local_var(variable)
    ours.build([variable])
    step = tf.function(lambda: ours.apply([tf.ones(2)], [variable]))
    graph = step.get_concrete_function().graph
    assert [each for each in graph.get_operations() if each.type == "HorovodSize"]
    step()
    assert variable.numpy().tolist() == [0.0, 0.0]
