"""Optimizers of Keras 2 made distributed: gradients are reduced once, however a program gets from its loss to
its step. Alone, on a backend that multiplies gradients, as if other ranks had the same.
"""

import numpy as np

RANKS = 3


class Multiplying:
    """The sum of the gradients of equal ranks."""

    name = "tensorflow"

    def reduce_gradients(self, gradients, variables, plan):
        return [None if gradient is None else gradient * float(RANKS) for gradient in gradients]

    def size(self):
        return RANKS


def distributed(optimizer, local_layers=None, **options):
    import tensorflow as tf

    from horovod._keras.backend import make_plan
    from horovod.common.training.gradient_options import GradientSettings
    from horovod.tensorflow.keras.keras2_optimizer import distribute

    settings = GradientSettings(op=1, **options)
    plan = make_plan(Multiplying(), optimizer, settings, local_layers=local_layers)
    return distribute(optimizer, plan, tf.keras)


def steps(optimizer, way, count=1):
    """How far the variables go in ``count`` steps whose local gradients are 1, in one way to make them."""
    import tensorflow as tf

    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]
    before = [variable.numpy() for variable in variables]

    def loss():
        return tf.add_n([tf.reduce_sum(variable) for variable in variables])

    for _ in range(count):
        way(optimizer, loss, variables)
    return [(old - variable.numpy()).tolist() for old, variable in zip(before, variables, strict=True)]


def minimize(optimizer, loss, variables):
    optimizer.minimize(loss, variables)


def tape(optimizer, loss, variables, **options):
    import tensorflow as tf

    with tf.GradientTape() as recorded:
        value = loss()
    optimizer.apply_gradients(zip(recorded.gradient(value, variables), variables, strict=True), **options)


def in_two_calls(optimizer, loss, variables):
    compute = getattr(optimizer, "compute_gradients", None) or optimizer._compute_gradients
    optimizer.apply_gradients(compute(loss, variables))


def aggregated_by_hand(optimizer, loss, variables):
    tape(optimizer, loss, variables, experimental_aggregate_gradients=False)


def in_a_function(way):
    def traced(optimizer, loss, variables):
        import tensorflow as tf

        tf.function(lambda: way(optimizer, loss, variables))()

    return traced


def rank_reduces_once():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    import tensorflow as tf

    optimizers = tf.keras.optimizers
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    all_of_us, one = [[RANKS, RANKS], RANKS], [[1, 1], 1]
    for sgd in (optimizers.SGD, optimizers.legacy.SGD):
        for way in (minimize, tape, in_two_calls):
            for each in (way, in_a_function(way)):
                assert steps(distributed(sgd(1.0)), each) == all_of_us, (sgd, way)
        assert steps(distributed(sgd(1.0)), aggregated_by_hand) == one
        assert steps(distributed(sgd(1.0, clipvalue=2.0)), tape) == [[2, 2], 2]  # the sum was clipped
        for scaled in (distributed(scaling(sgd(1.0))), scaling(distributed(sgd(1.0)))):
            assert isinstance(scaled, type(scaling(sgd(1.0))))
            assert steps(scaled, minimize) == all_of_us


def test_gradients_are_reduced_once(run_legacy_keras_ranks):
    run_legacy_keras_ranks(1, rank_reduces_once, timeout=120)


def rank_accumulates():
    """Two passes make a step; every pass counts as an iteration."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    import tensorflow as tf

    optimizers = tf.keras.optimizers
    for sgd in (optimizers.SGD, optimizers.legacy.SGD):
        for way in (minimize, tape, in_two_calls):
            for average in (False, True):
                options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
                optimizer = distributed(sgd(1.0), **options)
                step = RANKS * (1 if average else 2)
                assert steps(optimizer, way, count=2) == [[step, step], step]
                assert int(optimizer.iterations) == 2
                assert int(optimizer._agg_helper.counter) == 0
        optimizer = distributed(sgd(1.0), backward_passes_per_step=2)
        assert steps(optimizer, in_a_function(tape)) == [[0, 0], 0]
        assert int(optimizer._agg_helper.counter) == 1
        assert distributed(sgd(1.0))._agg_helper is None


def test_backward_passes(run_legacy_keras_ranks):
    run_legacy_keras_ranks(1, rank_accumulates, timeout=120)


def rank_keeps_local():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    import tensorflow as tf

    optimizers = tf.keras.optimizers
    for sgd in (optimizers.SGD, optimizers.legacy.SGD):

        def register(optimizer, loss, variables):
            optimizer.register_local_var(variables[0])
            tape(optimizer, loss, variables)

        # The job of this process has one rank, so local gradients are divided by one.
        assert steps(distributed(sgd(1.0)), register) == [[1, 1], RANKS]


def test_local_variables(run_legacy_keras_ranks):
    run_legacy_keras_ranks(1, rank_keeps_local)


def rank_carries_over(folder):
    """Configuration and state, for wrapping in the middle of training, for files, and for own classes."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    import tensorflow as tf

    keras = tf.keras
    optimizers = keras.optimizers

    @keras.saving.register_keras_serializable("mine")
    class Own(optimizers.SGD):
        pass

    def model(optimizer):
        keras.utils.set_random_seed(0)
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile(optimizer, "mse")
        return fit(made)

    def fit(made):
        made.fit(np.ones((4, 2)), np.zeros((4, 1)), epochs=2, verbose=0)
        return made

    scaling = keras.mixed_precision.LossScaleOptimizer
    for make, kind in (
        (lambda: optimizers.Adam(0.1), ".keras"),
        (lambda: optimizers.AdamW(0.1), ".h5"),
        (lambda: optimizers.legacy.Adam(0.1), ".h5"),
        (lambda: Own(0.1, momentum=0.9), ".keras"),
        (lambda: scaling(optimizers.Adam(0.1)), ".keras"),
    ):
        plain = model(make())
        ours = model(hvd.DistributedOptimizer(make()))
        wrapped = ours.optimizer
        assert type(wrapped).__name__ == type(plain.optimizer).__name__
        if not isinstance(wrapped, scaling):
            assert wrapped.get_config() == plain.optimizer.get_config()
        expected = fit(plain).get_weights()
        path = folder + "/model" + kind
        ours.save(path)
        legacy = "legacy" in type(plain.optimizer).__module__
        loaded = hvd.load_model(path, legacy_opts=legacy)
        unwrapped = keras.models.load_model(path)
        middle = model(make())
        middle.compile(hvd.DistributedOptimizer(middle.optimizer), "mse")
        for trained in (ours, loaded, unwrapped, middle):
            for mine, theirs in zip(fit(trained).get_weights(), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
        try:
            hvd.DistributedOptimizer(wrapped)
        except ValueError as error:
            assert "already" in str(error)
        else:
            raise AssertionError("wrapped twice")


def rank_takes_up_passes(folder):
    import horovod.tensorflow.keras as hvd

    hvd.init()
    import tensorflow as tf

    keras = tf.keras
    passes = {"backward_passes_per_step": 2}

    def fit(made, epochs):
        made.fit(np.ones((4, 2)), np.zeros((4, 1)), epochs=epochs, verbose=0)
        return made

    newer, legacy = keras.optimizers.Adam, keras.optimizers.legacy.Adam
    # Keras itself loses the state of a legacy optimizer in a file of the other kind.
    for optimizer, kinds in ((newer, (".keras", ".h5")), (legacy, (".h5",))):
        for kind in kinds:
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile(hvd.DistributedOptimizer(optimizer(0.1), **passes), "mse")
            fit(model, 4).save(folder + "/model" + kind)
            loaded = hvd.load_model(folder + "/model" + kind, legacy_opts=optimizer is legacy, **passes)
            assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) == 4
            before = [weight.copy() for weight in loaded.get_weights()]
            half, whole = fit(loaded, 1).get_weights(), fit(loaded, 1).get_weights()
            assert all((old == new).all() for old, new in zip(before, half, strict=True))
            assert any((old != new).any() for old, new in zip(before, whole, strict=True))
            for mine, theirs in zip(whole, fit(model, 2).get_weights(), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_passes_are_taken_up_again(run_legacy_keras_ranks, tmp_path):
    run_legacy_keras_ranks(1, rank_takes_up_passes, [str(tmp_path)], timeout=180)


def test_state(run_legacy_keras_ranks, tmp_path):
    run_legacy_keras_ranks(1, rank_carries_over, [str(tmp_path)], timeout=180)
