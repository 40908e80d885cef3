"""Wrapping optimizers, and aggregating gradients, in one process."""

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import functions, util
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

v1 = tf.compat.v1
OPTIONS = {
    "device_dense": "/cpu:0",
    "device_sparse": "/cpu:1",
    "compression": hvd.Compression.bf16,
    "sparse_as_dense": True,
    "backward_passes_per_step": 3,
    "op": hvd.Sum,
    "gradient_predivide_factor": 1.0,
    "average_aggregated_gradients": True,
    "groups": 2,
    "process_set": hvd.global_process_set,
    "scale_local_gradients": False,
}


@pytest.fixture(autouse=True)
def initialised():
    hvd.init()


def triple(gradients, variables):
    """A reduction that can be told from none."""
    return [None if gradient is None else 3 * gradient for gradient in gradients]


def eager_helper(passes=2, average=False):
    return LocalGradientAggregationHelperEager(passes, triple, False, average)


@pytest.mark.parametrize("in_graph", [False, True])
def test_only_the_last_pass_reduces(in_graph):
    helper, variable, unused = eager_helper(), tf.Variable([0.0, 0.0]), tf.Variable(0.0)

    def one_pass(gradient):
        return helper.compute_gradients([gradient, None], [variable, unused])

    run = tf.function(one_pass) if in_graph else one_pass
    found = [run(tf.constant([value, 1.0])) for value in (1.0, 2.0, 5.0, 7.0)]
    np.testing.assert_array_equal([f[0] for f in found], [[1, 1], [9, 6], [5, 1], [36, 6]])
    assert [f[1] for f in found] == [None] * 4


@pytest.mark.parametrize("missing", [0, 1], ids=["in the first pass", "in the last pass"])
def test_a_gradient_that_one_pass_lacks(missing):
    """The other pass has one, which neither gets lost nor is part of the next step."""
    helper, variables = eager_helper(), [tf.Variable(0.0), tf.Variable(0.0)]
    for _ in range(2):
        for current in range(2):
            second = None if current == missing else tf.constant(5.0)
            found = helper.compute_gradients([tf.constant(1.0), second], variables)
        assert [float(gradient) for gradient in found] == [6.0, 15.0]


def test_sparse_gradients_are_added_to_a_dense_sum():
    helper, table = eager_helper(average=True), tf.Variable(tf.zeros((3, 1)))
    for rows, expected in (([0, 0], [[2], [0], [0]]), ([2], [[3], [0], [1.5]])):
        slices = tf.IndexedSlices(tf.ones((len(rows), 1)), tf.constant(rows), tf.constant([3, 1]))
        (found,) = helper.compute_gradients([slices], [table])
        np.testing.assert_array_equal(found, expected)


def test_an_infinity_does_not_outlive_its_step():
    helper, variable = eager_helper(), tf.Variable(0.0)
    found = [helper.compute_gradients([tf.constant(g)], [variable])[0] for g in (np.inf, 1.0, 1.0, 1.0)]
    assert [float(value) for value in found] == [np.inf, np.inf, 1.0, 6.0]


@pytest.mark.parametrize("in_graph", [False, True])
def test_only_the_last_pass_applies(in_graph):
    """The others count as iterations of the optimizer."""

    class Counting:
        iterations = tf.Variable(0)

    helper, optimizer, variable = eager_helper(passes=3), Counting(), tf.Variable(0.0)

    def one_pass():
        (gradient,) = helper.compute_gradients([tf.constant(1.0)], [variable])
        helper.apply_gradients(lambda: variable.assign_sub(gradient), optimizer, [(gradient, variable)])

    run = tf.function(one_pass) if in_graph else one_pass
    seen = []
    for _ in range(6):
        run()
        seen.append((float(variable), int(optimizer.iterations)))
    assert seen == [(0, 1), (0, 2), (-9, 2), (-9, 3), (-9, 4), (-18, 4)]


def test_one_pass_a_step_adds_nothing():
    helper, variable = eager_helper(passes=1), tf.Variable(0.0)
    for _ in range(2):
        assert [float(g) for g in helper.compute_gradients([tf.constant(1.0)], [variable])] == [3.0]
        assert helper.apply_gradients(lambda: "applied", None) == "applied"


def test_in_a_session_without_initialising_its_variables():
    with tf.Graph().as_default(), v1.Session() as session:
        kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
        helper = LocalGradientAggregationHelper(2, triple, False, True, 0, kind, name="mine")
        variable = v1.get_variable("x", initializer=tf.constant(0.0))
        (gradient,) = helper.compute_gradients([tf.constant(4.0)], [variable])
        apply = helper.apply_gradients(lambda: variable.assign_sub(gradient), None, [(gradient, variable)])
        session.run(v1.global_variables_initializer())
        names = [variable.name.split("/")[-1] for variable in v1.local_variables()]
        assert names == ["mine_aggregation_counter:0", "mine_aggregated_gradient_0:0"]
        seen = []
        for _ in range(4):
            session.run(apply)
            seen.append(session.run([variable, helper.counter]))
    assert seen == [[0, 1], [-12, 0], [-12, 1], [-24, 0]]


def test_passes_must_be_positive():
    for make in (
        eager_helper,
        lambda passes: hvd.DistributedOptimizer(sgd(), backward_passes_per_step=passes),
    ):
        with pytest.raises(ValueError, match="backward_passes_per_step must be > 0"):
            make(0)


def sgd():
    return v1.train.GradientDescentOptimizer(0.5)


def test_an_optimizer_of_version_1():
    optimizer = hvd.DistributedOptimizer(sgd())
    assert isinstance(optimizer, v1.train.Optimizer)
    assert optimizer.get_name() == "DistributedGradientDescentOptimizer"
    assert hvd.DistributedOptimizer(sgd(), name="mine", use_locking=True).get_name() == "mine"
    variable = tf.Variable(2.0)
    optimizer.minimize(lambda: variable**2, var_list=[variable])
    assert float(variable) == 0.0
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_an_optimizer_of_keras_gets_every_option(package):
    keras = pytest.importorskip(package, reason=f"the package {package} is not installed")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), "mine", use_locking=True, **OPTIONS)
    settings = optimizer._plan.settings
    assert {name: getattr(settings, name) for name in OPTIONS} == OPTIONS
    assert optimizer._plan.name == "mine"


def test_what_is_no_optimizer():
    with pytest.raises(ValueError, match="optimizer"):
        hvd.DistributedOptimizer("sgd")
    for options, text in (
        ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "Adasum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "op != Average"),
        ({"groups": [1]}, "list of lists"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(sgd(), **options)


def test_global_variables_are_known_to_graphs_only():
    with pytest.raises(RuntimeError, match=r"hvd\.broadcast_variables"):
        hvd.broadcast_global_variables(0)
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("x", initializer=tf.constant(4.0))
        session.run(v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        assert session.run(variable) == 4.0


def test_the_hook_follows_the_graph():
    hook = hvd.BroadcastGlobalVariablesHook(0)
    for value in (1.0, 2.0):
        with tf.Graph().as_default():
            variable = v1.get_variable("x", initializer=tf.constant(value))
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(variable) == value
            assert hook.bcast_op.graph is v1.get_default_graph()


def test_broadcast_of_nothing():
    assert hvd.broadcast_variables([], 0) is None
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(hvd.broadcast_variables([], 0))


def test_cache():
    calls = []

    @util._cache
    def noted(*args, **kwargs):
        calls.append((args, kwargs))
        return len(calls)

    assert [noted(1), noted(1), noted(1, a=2), noted(2), noted(1, a=2)] == [1, 1, 2, 3, 2]
    with tf.Graph().as_default():
        assert noted(1) == 4


def test_references():
    first, second = tf.Variable(1), tf.Variable(2)
    references = util.vars_to_refs([first, [second]])
    assert {references: "key"}[util.vars_to_refs((first, (second,)))] == "key"
    again = util.refs_to_vars(references)
    assert again[0] is first
    assert again[1][0] is second
    assert util.refs_to_vars(util.vars_to_refs(first)) is first


def test_subgraph():
    assert util._executing_eagerly()
    seen = []
    util._make_subgraph(lambda: seen.append(util._executing_eagerly()))()
    assert seen == [False]


def test_objects_need_no_session():
    assert functions.broadcast_object({"a": 1}, session=object()) == {"a": 1}
    with tf.Graph().as_default():
        assert hvd.broadcast_object_fn(0)([1]) == [1]
        assert hvd.allgather_object("x", name="named") == ["x"]
