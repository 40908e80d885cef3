"""Optimizers of Keras 3 made distributed, in one process: on a backend with made-up ranks, and alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_optimizers import (
    OPTIMIZERS,
    RANKS,
    AllRanks,
    Echo,
    echoing,
    fit,
    net,
    numbers,
    scaled,
    schedule,
    states,
)

import horovod.keras
import horovod.tensorflow.keras as hvd

EVERY = pytest.mark.parametrize("kind", OPTIMIZERS)


@pytest.fixture(autouse=True)
def alone():
    hvd.init()
    yield
    keras.config.set_dtype_policy("float32")


class Tripling:
    """The gradients of three equal ranks, computed by hand and given to the plain optimizer."""

    def __init__(self, optimizer):
        self.apply, optimizer.apply = optimizer.apply, self.triple

    def triple(self, grads, trainable_variables=None):
        return self.apply([gradient * RANKS for gradient in grads], trainable_variables)


def by_hand(optimizer):
    Tripling(optimizer)
    return optimizer


@EVERY
def test_gradients_are_reduced_before_anything_else(kind):
    make = OPTIMIZERS[kind]
    plain = fit(net(), by_hand(make()), epochs=2)
    ours = fit(net(), echoing(make()), epochs=2)
    np.testing.assert_allclose(states(ours), states(plain), rtol=1e-6, atol=1e-7)
    assert not np.allclose(states(ours), states(fit(net(), make(), epochs=2)))


@EVERY
def test_alone_it_is_the_plain_optimizer(kind):
    plain, ours = (fit(net(), wrap(OPTIMIZERS[kind]())) for wrap in (lambda o: o, hvd.DistributedOptimizer))
    assert (states(ours) == states(plain)).all()


@EVERY
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


@EVERY
def test_state_is_carried_over(kind):
    """Wrapped in the middle of training, it goes on as if it had been wrapped before."""
    make = OPTIMIZERS[kind]
    whole, halves = fit(net(), make(), epochs=2), fit(net(), make())
    middle = halves.optimizer
    halves.compile(hvd.DistributedOptimizer(middle), "mse")
    assert (numbers(halves.optimizer.variables) == numbers(middle.variables)).all()
    assert (states(fit(halves)) == states(whole)).all()
    assert int(middle.iterations) < int(halves.optimizer.iterations)  # a copy


@EVERY
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


def test_load_model_without_optimizer(tmp_path):
    net().save(tmp_path / "model.keras")
    assert hvd.load_model(tmp_path / "model.keras").optimizer is None


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


def test_a_rate_that_is_a_function():
    ours = fit(net(), echoing(keras.optimizers.SGD(lambda: 0.1)))
    np.testing.assert_allclose(states(ours)[:-1], states(fit(net(), by_hand(keras.optimizers.SGD(0.1))))[:-2])


def test_exclusions_from_weight_decay():
    model, plain = net(), keras.optimizers.AdamW(0.01, weight_decay=0.5)
    plain.exclude_from_weight_decay(var_names=["bias"])
    expected = fit(model, by_hand(plain))
    ours = keras.optimizers.AdamW(0.01, weight_decay=0.5)
    ours.exclude_from_weight_decay(var_names=["bias"])
    np.testing.assert_allclose(
        numbers(fit(net(), echoing(ours)).weights), numbers(expected.weights), rtol=1e-6
    )


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adam", "clipnorm", "average", "loss scale", "muon"])
def test_backward_passes(kind, average):
    """As one step on the rows of both passes, of whose mean loss each pass has half."""
    backend = Echo()
    ours = echoing(
        OPTIMIZERS[kind](), backend, backward_passes_per_step=2, average_aggregated_gradients=average
    )
    model = fit(net(), ours, batch_size=3, epochs=2)
    factor = RANKS if average else 2 * RANKS
    plain = OPTIMIZERS[kind]()
    apply = plain.apply
    plain.apply = lambda grads, variables=None: apply([g * factor for g in grads], variables)
    expected = fit(net(), plain, batch_size=6, epochs=2)
    np.testing.assert_allclose(numbers(model.weights), numbers(expected.weights), rtol=1e-5, atol=1e-6)
    assert int(ours.iterations) == int(plain.iterations) == 8
    assert backend.calls == 1  # traced once, in the branch that ends a step
    assert int(ours._agg_helper.counter) == 0


def test_schedules_see_every_pass():
    ours = echoing(keras.optimizers.SGD(schedule()), backward_passes_per_step=2)
    fit(net(), ours, batch_size=6)
    assert float(ours.learning_rate) == pytest.approx(float(schedule()(4)))
    assert int(ours.iterations) == 2


def test_an_unfinished_step_is_not_saved(tmp_path):
    ours = hvd.DistributedOptimizer(keras.optimizers.Adam(), backward_passes_per_step=3)
    fit(net(), ours, rows=(0, 6)).save(tmp_path / "model.keras")
    assert int(ours._agg_helper.counter) == 1
    assert len(keras.models.load_model(tmp_path / "model.keras").optimizer.variables) == len(ours.variables)


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


class Gpu:
    device_type = name = "GPU"


def test_auto_does_not_compile_by_xla(monkeypatch, tmp_path):
    net_with_plain = fit(net(), keras.optimizers.SGD())
    net_with_plain.save(tmp_path / "model.keras")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda device_type=None: [Gpu()])
    plan = Echo()
    plan.name = "tensorflow"
    ours, plain = net(), net()
    ours.compile(echoing(keras.optimizers.SGD(), plan), "mse")
    plain.compile(keras.optimizers.SGD(), "mse")
    assert (ours.jit_compile, plain.jit_compile) == (False, True)
    assert hvd.load_model(tmp_path / "model.keras").jit_compile is False


WRONG = [
    ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op != Average"),
    ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "average_aggregated_gradients"),
    ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
    ({"op": 17}, "is not a reduction"),
    ({"groups": "all"}, "groups should be"),
    ({"groups": -1}, "groups should be"),
    ({"compression": "fp16"}, "hvd.Compression.fp16"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), **options)


def test_wrong_optimizers():
    ours = hvd.DistributedOptimizer(keras.optimizers.SGD())
    for wrong in ("adam", None, tf.compat.v1.train.AdamOptimizer()):
        with pytest.raises(ValueError, match="needs an optimizer of Keras"):
            hvd.DistributedOptimizer(wrong)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(ours)
    accumulating = keras.optimizers.SGD(gradient_accumulation_steps=2)
    for optimizer in (accumulating, scaled(accumulating)):
        with pytest.raises(ValueError, match="use one of them"):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="found a int"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[3])


def test_not_before_init():
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"hvd.init\(\)"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())


def test_num_groups_is_deprecated():
    with pytest.warns(DeprecationWarning, match="groups"):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(), num_groups=3)
    assert optimizer._plan.settings.groups == 3


@pytest.mark.parametrize("adapter", [hvd, horovod.keras])
def test_every_argument_arrives(adapter):
    options = {
        "name": "mine",
        "device_dense": "/cpu:0",
        "device_sparse": "/cpu:1",
        "compression": hvd.Compression.fp16,
        "sparse_as_dense": True,
        "gradient_predivide_factor": 2.0,
        "op": hvd.Average,
        "groups": 5,
    }
    settings = adapter.DistributedOptimizer(keras.optimizers.SGD(), **options)._plan.settings
    assert {name: getattr(settings, name) for name in options} == options
    layer, process_set = keras.layers.Dense(1), AllRanks()
    plan = adapter.PartialDistributedOptimizer(
        keras.optimizers.SGD(),
        **options,
        backward_passes_per_step=4,
        average_aggregated_gradients=True,
        process_set=process_set,
        local_layers=layer,
        scale_local_gradients=False,
    )._plan
    assert {name: getattr(plan.settings, name) for name in options} == options
    assert plan.settings.process_set is process_set
    found = (plan.passes, plan.average_passes, plan.local_layers, plan.scale_local)
    assert found == (4, True, (layer,), False)


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_other_backends(backend, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    for use in (
        lambda: horovod.keras.DistributedOptimizer(keras.optimizers.SGD()),
        lambda: horovod.keras.allreduce(1.0),
        lambda: horovod.keras.Compression,
        lambda: horovod.keras.broadcast_variables([], 0),
    ):
        with pytest.raises(ValueError, match=f"computes by {backend} here.*KERAS_BACKEND"):
            use()
    with pytest.raises(ValueError, match=r"import horovod\.keras instead"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())
