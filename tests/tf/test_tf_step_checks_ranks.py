"""The checks of a step, on every way that gradients take: NaN and Inf, and models that have drifted apart."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common import remarks

v1 = tf.compat.v1
NONFINITE = {"HOROVOD_CHECK_NONFINITE": "1"}
TAPES = [
    (tape, in_graph)
    for tape in ("DistributedGradientTape", "PartialDistributedGradientTape")
    for in_graph in (False, True)
]
KERAS = [
    ("run_ranks", ["horovod.tensorflow.keras", "keras"]),
    ("run_torch_keras_ranks", ["horovod.keras", "keras"]),
    ("run_legacy_keras_ranks", ["horovod.tensorflow.keras", "tf_keras"]),
]


def said(text):
    """What stands in an error, without what TensorFlow puts around it."""
    found = [line for line in text.splitlines() if "In step" in line or "Before step" in line]
    line = found[0] if found else text
    return line[max(line.find("In step"), line.find("Before step"), 0) :]


def errors_of(step, steps, rank_drifts=lambda at: None):
    """What each of the steps raises: its number, the class and the text. ``step`` gets the factor of the
    loss: NaN on rank 1 in step 2, Inf on both in step 4.
    """
    poisons = {(2, 1): np.nan, (4, 0): np.inf, (4, 1): np.nan}
    errors = []
    for at in range(1, steps + 1):
        rank_drifts(at)
        try:
            step(poisons.get((at, hvd.rank()), 1.0))
        except Exception as error:
            errors.append([at, type(error).__name__, said(str(error))])
    return errors


def check_poisoned(results, classes):
    """Both ranks have said the same of the steps 2 and 4, and applied nothing that is not finite."""
    (one, values), (other, others) = results
    assert one == other and values == others and np.isfinite(values).all()
    assert [(at, name) for at, name, _ in one] == [(2, classes), (4, classes)]
    assert one[0][2].startswith("In step 2 the gradient of '") and "' on rank 1 has NaN. No rank" in one[0][2]
    assert "' on rank 0 has Inf; so have gradients on rank 1 ('" in one[1][2]


def tape_step(tape, in_graph):
    """A step of gradient descent with a dense and a sparse gradient, and the variables. One of a partial
    tape is each rank's own and differs from the start.
    """
    table = tf.Variable(tf.ones((3, 2)), name="table")
    weight = tf.Variable(tf.ones((2, 2)), name="weight")
    own = tf.Variable(float(hvd.rank()), name="own")
    partial = tape.startswith("Partial")

    def step(factor):
        with tf.GradientTape() as plain:
            loss = tf.reduce_sum(tf.gather(table, [0, 2]) @ weight) * factor + own
        recorded = getattr(hvd, tape)(plain)
        sources = [table, weight]
        if partial:
            recorded.register_local_source(own)
            sources.append(own)
        for variable, gradient in zip(sources, recorded.gradient(loss, sources), strict=True):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))

    run = tf.function(step) if in_graph else step
    return lambda factor: run(tf.constant(factor, tf.float32)), [table, weight]


def ranks_meet_nan(tape, in_graph):
    hvd.init()
    step, variables = tape_step(tape, in_graph)
    errors = errors_of(step, 5)
    return errors, np.concatenate([variable.numpy().ravel() for variable in variables]).tolist()


@pytest.mark.parametrize(("tape", "in_graph"), TAPES)
def test_a_tape_finds_gradients_that_are_no_numbers(run_ranks, tape, in_graph):
    results = run_ranks(2, ranks_meet_nan, [tape, in_graph], env=NONFINITE)
    check_poisoned(results, "UnknownError" if in_graph else "NonfiniteGradientError")
    assert "'table:0'" in results[0][0][0][2]


def ranks_start_apart(in_graph, broadcast):
    """What this rank has said of its variables after four steps."""
    hvd.init()
    step, variables = tape_step("DistributedGradientTape", in_graph)
    variables[1].assign_add(tf.fill((2, 2), float(hvd.rank())))
    for at in range(4):
        if at == broadcast:
            hvd.broadcast_variables(variables, root_rank=0)
        step(1.0)
    return remarks._texts


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("broadcast", [None, 0, 1])
def test_a_forgotten_broadcast_is_told_after_the_first_step(run_ranks, in_graph, broadcast):
    """A graph is made before the first step, and many programs broadcast after it."""
    told, others = run_ranks(2, ranks_start_apart, [in_graph, broadcast])
    assert others == [] and len(told) == (broadcast is None)
    assert all(
        "is 'weight:0' (1 of 2 do)" in text and "Add hvd.broadcast_variables(" in text for text in told
    )


def ranks_drift(tape, in_graph, size):
    """The last rank changes one element by one unit in the last place before step 4."""
    hvd.init()
    step, variables = tape_step(tape, in_graph)

    def drift(at):
        if at == 4 and hvd.rank() == size - 1:
            value = variables[1].numpy()
            value[1, 0] = np.nextafter(value[1, 0], np.float32(9))
            variables[1].assign(value)

    return errors_of(lambda _: step(1.0), 6, drift)


@pytest.mark.parametrize(("tape", "in_graph"), TAPES)
@pytest.mark.parametrize(("size", "every", "found"), [(3, 1, 4), (2, 2, 5), (2, 9, None)])
def test_a_tape_finds_a_model_that_drifted_by_one_bit(run_ranks, tape, in_graph, size, every, found):
    results = run_ranks(
        size, ranks_drift, [tape, in_graph, size], env={"HOROVOD_CHECK_PARAMETERS_EVERY": str(every)}
    )
    assert all(result == results[0] for result in results)
    if found is None:
        assert results[0] == []
        return
    at, name, text = results[0][0]
    assert (at, name) == (found, "UnknownError" if in_graph else "ParameterDivergenceError")
    assert text.startswith(f"Before step {found} the parameters are not equal on all ranks: ")
    assert ("rank 2 differs from ranks 0, 1;" in text) == (size == 3)
    assert "the first tensor that differs is 'weight:0' (1 of 2 do)" in text


def ranks_optimize(in_session, passes):
    """An optimizer of tf.compat.v1, which also takes several passes together."""
    hvd.init()
    if in_session:
        v1.disable_eager_execution()
    variable = v1.get_variable("x", initializer=tf.ones((2,)), use_resource=True)
    plain = v1.train.GradientDescentOptimizer(0.1)
    optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=passes)
    if not in_session:
        for_loss = lambda factor: lambda: tf.reduce_sum(variable**2) * factor  # noqa: E731

        def step(factor):
            for at in range(passes):
                loss = for_loss(factor if at == 0 else 1.0)
                optimizer.apply_gradients(optimizer.compute_gradients(loss, [variable]))

        return errors_of(step, 3)
    given = v1.placeholder(tf.float32, ())
    update = optimizer.minimize(tf.reduce_sum(variable**2) * given, var_list=[variable])
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])

        def run(factor):
            for at in range(passes):
                session.run(update, {given: factor if at == 0 else 1.0})

        return errors_of(run, 3)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_optimizers_of_graphs_find_them(run_ranks, in_session, passes):
    one, other = run_ranks(2, ranks_optimize, [in_session, passes], env=NONFINITE)
    assert one == other
    at, name, text = one[0]
    assert (at, name) == (2, "UnknownError" if in_session else "NonfiniteGradientError")
    assert text.startswith("In step 2 the gradient of 'x:0' on rank 1 has NaN. No rank has applied it.")


def ranks_fit(adapter, package, eagerly, drifting):
    """Three fits of one batch each; what is wrong comes in the second."""
    adapter, keras = importlib.import_module(adapter), importlib.import_module(package)
    adapter.init()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="a"), keras.layers.Dense(1)])
    model.compile(adapter.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", run_eagerly=eagerly)
    errors = []
    for at in (1, 2, 3):
        wrong = at == 2 and adapter.rank() == 1
        inputs = np.full((2, 2), np.nan if wrong and not drifting else 1.0, np.float32)
        if wrong and drifting:
            weights = model.get_weights()
            weights[2][1, 0] = np.nextafter(weights[2][1, 0], np.float32(9))
            model.set_weights(weights)
        try:
            model.fit(inputs, np.ones((2, 1), np.float32), batch_size=2, verbose=0)
        except Exception as error:
            errors.append([at, type(error).__name__, said(str(error))])
    return errors


@pytest.mark.parametrize(("ranks", "packages"), KERAS, ids=["keras", "torch", "tf_keras"])
@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("drifting", [False, True])
def test_models_of_keras_are_checked(request, ranks, packages, eagerly, drifting):
    env = {"HOROVOD_CHECK_PARAMETERS_EVERY": "1"} if drifting else NONFINITE
    run = request.getfixturevalue(ranks)
    one, other = run(2, ranks_fit, [*packages, eagerly, drifting], env=env, timeout=240)
    assert one == other
    at, name, text = one[0]
    in_graph = not eagerly and ranks != "run_torch_keras_ranks"
    own = "ParameterDivergenceError" if drifting else "NonfiniteGradientError"
    assert (at, name) == (2, "UnknownError" if in_graph else own)
    assert len(one) == (2 if drifting else 1), one
    expected = "the first tensor that differs is" if drifting else "a/kernel"
    assert text.startswith("Before step 2" if drifting else "In step 2") and expected in text


def ranks_scale_losses(adapter, package):
    """Loss scaling leaves out a step with gradients that are not finite, which is no error."""
    adapter, keras = importlib.import_module(adapter), importlib.import_module(package)
    adapter.init()
    scaling = (
        getattr(keras.optimizers, "LossScaleOptimizer", None) or keras.mixed_precision.LossScaleOptimizer
    )
    optimizer = adapter.DistributedOptimizer(scaling(keras.optimizers.SGD(0.1)))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer, "mse")
    for at in range(3):
        value = np.inf if at == 1 and adapter.rank() == 1 else 1.0
        model.fit(np.full((2, 2), value, np.float32), np.ones((2, 1), np.float32), verbose=0)
    return model.get_weights()[0].tolist()


@pytest.mark.parametrize(("ranks", "packages"), KERAS, ids=["keras", "torch", "tf_keras"])
def test_steps_that_loss_scaling_leaves_out_are_no_errors(request, ranks, packages):
    one, other = request.getfixturevalue(ranks)(2, ranks_scale_losses, packages, env=NONFINITE, timeout=240)
    assert one == other and np.isfinite(one).all() and one != [[1.0], [1.0]]


def ranks_of_an_elastic_job():
    """Rank 1 is another process in the second generation, whose second step is of another shape."""
    from horovod.common.training import step_checks

    hvd.init()
    weights = tf.Variable([1.0, 2.0])

    def made():
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(x * weights)
            tape = hvd.DistributedGradientTape(tape)
            weights.assign_sub(tape.gradient(loss, [weights])[0])

        return step

    step = made()
    for rows in (8, 8, 8, 3):  # the last batch of an epoch has fewer rows
        step(tf.ones((rows, 2)))
    hvd.shutdown()
    hvd.init()
    if hvd.rank() == 1:
        step_checks._of_steps.clear()
        step = made()
    for rows in (8, 3, 8, 3):
        step(tf.ones((rows, 2)))
    return weights.numpy().tolist()


def test_graphs_that_are_kept_count_steps_as_new_ones_do(run_ranks):
    one, other = run_ranks(2, ranks_of_an_elastic_job, env={"HOROVOD_ELASTIC": "1"}, timeout=100)
    assert one == other
