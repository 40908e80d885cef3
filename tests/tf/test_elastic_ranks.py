"""The states of TensorFlow and Keras between real ranks: whose state all get, and what a lost rank raises."""

import importlib
import os
import signal

import numpy as np
import pytest

PACKAGES = {
    "run_ranks": ["horovod.tensorflow.keras", "keras"],
    "run_legacy_keras_ranks": ["horovod.tensorflow.keras", "tf_keras"],
    "run_torch_keras_ranks": ["horovod.keras", "keras"],
}


def rank_syncs(adapter, package, commits):
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    layers = [keras.layers.InputLayer((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.01 * (1 + hvd.rank()))
    model.compile(optimizer, "mse")
    indices = hvd.elastic.ElasticIndices(20)
    state = hvd.elastic.KerasState(model, batch=0, log=[hvd.rank()], indices=indices)
    x, y = np.random.normal(size=(4, 3)).astype("float32"), np.ones((4, 2), "float32")

    def everything():
        variables = [*model.weights, *optimizer.variables, optimizer.learning_rate]
        return repr([np.asarray(v.numpy()).tolist() for v in variables] + [state.batch, state.log])

    for number in range(commits[hvd.rank()]):
        model.fit(x, y, verbose=0)
        state.batch = number + 1
        state.save()
        state._age = (0, number + 1)
    model.fit(x, y, verbose=0)
    state.restore()
    mine = everything()
    state.sync()
    now = everything()
    model.fit(x, y, verbose=0)
    state.log.append("lost")
    state.restore()
    assert everything() == now
    return [mine, now, state._age]


@pytest.mark.parametrize("commits", [[0, 0], [1, 0, 2]], ids=str)
@pytest.mark.parametrize("ranks", list(PACKAGES))
def test_the_newest_commit_wins(request, ranks, commits):
    run = request.getfixturevalue(ranks)
    results = run(len(commits), rank_syncs, [*PACKAGES[ranks], commits], timeout=240)
    winner = commits.index(max(commits))
    assert [now for _, now, _ in results] == [results[winner][0]] * len(commits)
    assert len({mine for mine, _, _ in results}) == len(commits)


def rank_syncs_variables(session):
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    if session:
        with tf.Graph().as_default(), tf.compat.v1.Session() as open_session:
            variable = tf.compat.v1.get_variable("weights", initializer=[1.0 + hvd.rank(), 2.0])
            open_session.run(tf.compat.v1.global_variables_initializer())
            state = hvd.elastic.TensorFlowState(session=open_session, batch=hvd.rank())
            state._age = (0, hvd.rank())
            state.sync()
            state.sync()
            return [open_session.run(variable).tolist(), state.batch]
    variable = tf.Variable([1.0 + hvd.rank(), 2.0])
    state = hvd.elastic.TensorFlowState([variable], batch=hvd.rank())
    state._age = (0, hvd.rank())
    state.sync()
    return [variable.numpy().tolist(), state.batch]


@pytest.mark.parametrize("session", [False, True])
def test_variables(run_ranks, session):
    assert run_ranks(2, rank_syncs_variables, [session], timeout=240) == [[[2.0, 2.0], 1]] * 2


def rank_0_comes_to_a_session():
    """First rank 0 has the state; then another process, with a graph of its own, is rank 0."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    values = []
    for generation in range(2):
        if generation == 0 or hvd.rank() == 0:
            with tf.Graph().as_default() as graph:
                variable = tf.compat.v1.get_variable("weights", initializer=[generation + 1.0 + hvd.rank()])
                session = tf.compat.v1.Session()
                session.run(tf.compat.v1.global_variables_initializer())
                state = hvd.elastic.TensorFlowState(session=session)
                graph.finalize()  # as a MonitoredSession does
        state.sync()
        values.append(session.run(variable).tolist())
    return values


def test_a_rank_comes_to_a_session(run_ranks):
    assert run_ranks(2, rank_0_comes_to_a_session, timeout=240) == [[[1.0], [1.0]]] * 2


def rank_is_not_built(adapter, package):
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    model = keras.Sequential([keras.layers.Dense(2)])
    if hvd.rank() == 0:
        model.build((None, 3))
    state = hvd.elastic.KerasState(model)
    try:
        state.sync()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("ranks", ["run_ranks", "run_torch_keras_ranks"])
def test_a_model_that_is_not_built_is_told(request, ranks):
    texts = request.getfixturevalue(ranks)(2, rank_is_not_built, PACKAGES[ranks], timeout=240)
    assert texts[0] == texts[1]
    assert "rank 0: 2; rank 1: 0" in texts[0] and "Build" in texts[0]


PASSES = 3


def gradients_of(rank):
    return [
        np.random.default_rng([rank, number]).normal(size=(3, 2)).astype("float32") for number in range(9)
    ]


def rank_begins_a_step_anew(adapter, package):
    import tensorflow as tf

    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    model = keras.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(2, use_bias=False)])
    (weights,) = model.weights
    weights.assign(np.ones((3, 2)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=PASSES)
    state = hvd.elastic.KerasState(model, optimizer)
    for gradient in gradients_of(9)[: 1 + hvd.rank()]:  # where a failure has found each rank
        optimizer.apply_gradients([(tf.constant(gradient), weights)])
    state.sync()
    for gradient in gradients_of(hvd.rank())[: 2 * PASSES]:
        optimizer.apply_gradients([(tf.constant(gradient), weights)])
    return weights.numpy().tolist()


@pytest.mark.parametrize("ranks", ["run_ranks", "run_legacy_keras_ranks"])
def test_ranks_begin_a_step_of_several_passes_together(request, ranks):
    results = request.getfixturevalue(ranks)(2, rank_begins_a_step_anew, PACKAGES[ranks], timeout=240)
    wanted = 1 - np.mean([np.sum(gradients_of(rank)[: 2 * PASSES], axis=0) for rank in range(2)], axis=0)
    for result in results:
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def rank_is_lost(kind):
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd
    from horovod.common.exceptions import HorovodInternalError

    hvd.init()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    variables = [tf.Variable([1.0, 2.0])]
    try:
        with importlib.import_module("horovod.tensorflow.elastic").internal_errors():
            if kind == "eager":
                hvd.allreduce(tf.ones(3))
            elif kind == "function":
                tf.function(lambda x: hvd.allreduce(x, name="mine"))(tf.ones(3))
            else:
                import horovod.tensorflow as hvd_tf

                hvd_tf.elastic.broadcast(variables, 0)
    except HorovodInternalError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["eager", "function", "broadcast"])
def test_a_lost_rank_is_the_error_of_elastic_training(run_ranks, kind):
    text, _ = run_ranks(2, rank_is_lost, [kind], dies=[1], timeout=240)
    assert "rank 1" in text
