"""Local aggregation of gradients, and optimizers of tf.compat.v1, in several ranks against numpy."""

import numpy as np
import tensorflow as tf
from least_squares import close, initial, loss_of, numpy_average, numpy_gradients, tensors, variables

import horovod.tensorflow as hvd
from horovod.common.training.gradient_options import GradientSettings
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradient_reduction import GradientReducer

v1 = tf.compat.v1
RATE = 0.01


def total_of_passes(passes):
    """For each parameter the sum over the passes of the average over the ranks."""
    ranks = list(range(hvd.size()))
    averages = [numpy_average(initial(), ranks, step) for step in passes]
    return [sum(parts) for parts in zip(*averages, strict=True)]


def descended(steps, passes=1):
    """The parameters after gradient descent by the averages over ranks and passes."""
    parameters, ranks = initial(), list(range(hvd.size()))
    for step in range(steps):
        each = [numpy_average(parameters, ranks, passes * step + part) for part in range(passes)]
        gradients = [np.mean(parts, axis=0) for parts in zip(*each, strict=True)]
        parameters = [value - RATE * g for value, g in zip(parameters, gradients, strict=True)]
    return parameters


def aggregation(in_graph, average):
    """Three passes a step, traced again for other numbers of rows: the first variable is this rank's own, the
    gradient of the last one is sparse, and one has none. Only the third pass communicates.
    """
    hvd.init()
    reducer = GradientReducer("Aggregated", GradientSettings())
    helper = LocalGradientAggregationHelperEager(3, reducer, False, average)
    parameters, unused = variables(), tf.Variable(0.0)
    helper.register_local_var(parameters[0])

    def one_pass(data):
        with tf.GradientTape() as tape:
            loss = loss_of(parameters, data)
        sources = [*parameters, unused]
        return helper.compute_gradients(tape.gradient(loss, sources), sources)

    run = tf.function(one_pass) if in_graph else one_pass
    if in_graph:  # while a graph is made, the ranks compare what it reduces
        run.get_concrete_function(tensors(hvd.rank(), 0))
    for first in (0, 3, 6):
        for step in range(first, first + 3):
            before = hvd.counters()["tensors"]
            found = run(tensors(hvd.rank() + step % 2, step))
            assert (hvd.counters()["tensors"] > before) == (step == first + 2)
            assert helper.counter.numpy() == (step + 1) % 3
        each = [
            [numpy_gradients(initial(), rank + step % 2, step) for step in range(first, first + 3)]
            for rank in range(hvd.size())
        ]
        sums = [[sum(parts) for parts in zip(*of_rank, strict=True)] for of_rank in each]
        expected = [np.mean(parts, axis=0) for parts in zip(*sums, strict=True)]
        expected[0] = sums[hvd.rank()][0] / hvd.size()
        assert found[3] is None
        close(found[:3], [value / (3 if average else 1) for value in expected])


def test_aggregation(run_ranks):
    for in_graph in (False, True):
        for average in (False, True):
            run_ranks(2, aggregation, [in_graph, average], timeout=120)


def aggregation_in_unequal_graphs():
    """One rank's function has more branches than the others', also before the gradients are reduced."""
    hvd.init()
    reducer = GradientReducer("Aggregated", GradientSettings())
    helper = LocalGradientAggregationHelperEager(2, reducer, False, False)
    parameters, noted = variables(), tf.Variable(0.0)

    @tf.function
    def one_pass(data):
        if hvd.rank() == 0:
            for _ in range(3):
                tf.cond(noted > 0, lambda: noted.assign_add(1.0), lambda: noted.assign_sub(1.0))
        with tf.GradientTape() as tape:
            loss = loss_of(parameters, data)
        return helper.compute_gradients(tape.gradient(loss, parameters), parameters)

    for step in range(4):
        found = one_pass(tensors(hvd.rank(), step))
    close(found, total_of_passes([2, 3]))


def test_aggregation_in_unequal_graphs(run_ranks):
    run_ranks(2, aggregation_in_unequal_graphs)


def placeholders():
    data = [v1.placeholder(dtype, shape) for dtype, shape in ((tf.int64, [None]), (tf.float32, [None, 4]))]
    return [*data, v1.placeholder(tf.float32, [None, 3])]


def graph_variables(use_resource):
    return [
        v1.get_variable(name, initializer=tf.constant(value, tf.float32), use_resource=use_resource)
        for value, name in zip(initial(), ("weight", "bias", "table"), strict=True)
    ]


def in_a_session(passes, use_resource, old_control_flow):
    """``minimize`` with plain gradient descent, from other values on every rank before the broadcast."""
    hvd.init()
    steps = [tensors(hvd.rank(), step) for step in range(3 * passes)]
    values = [[tensor.numpy() for tensor in data] for data in steps]
    if old_control_flow:
        v1.disable_control_flow_v2()
    with tf.Graph().as_default(), v1.Session() as session:
        parameters, data = graph_variables(use_resource), placeholders()
        count = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(RATE),
            backward_passes_per_step=passes,
            average_aggregated_gradients=True,
            groups=1,
        )
        train = optimizer.minimize(loss_of(parameters, data), global_step=count, var_list=parameters)
        start = hvd.broadcast_global_variables(hvd.size() - 1)
        session.run(v1.global_variables_initializer())
        if hvd.rank() != hvd.size() - 1:
            session.run([variable.assign(variable * 0) for variable in parameters])
        session.run(start)
        for value in values:
            session.run(train, dict(zip(data, value, strict=True)))
        close(session.run(parameters), descended(3, passes))
        assert session.run(count) == 3


def test_in_a_session(run_ranks):
    for arguments in ([1, True, False], [2, True, False], [2, False, True]):
        run_ranks(2, in_a_session, arguments, timeout=120)


def in_a_monitored_session():
    """With momentum, whose slots the hook broadcasts too, and a variable that is this rank's own."""
    hvd.init()
    values = [[tensor.numpy() for tensor in tensors(hvd.rank(), step)] for step in range(2)]
    with tf.Graph().as_default():
        parameters, data = graph_variables(True), placeholders()
        own = v1.get_variable("own", initializer=tf.constant([1.0 + hvd.rank()]))
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(RATE, 0.5), sparse_as_dense=True)
        optimizer.register_local_var(own)
        loss = loss_of(parameters, data) + tf.reduce_sum(own**2)
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
        assert optimizer.get_slot_names() == ["momentum"]
        assert len(optimizer.variables()) == 4
        hook = hvd.BroadcastGlobalVariablesHook(0, device="/cpu:0")
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            before = session.run(own)
            session.run(train, dict(zip(data, values[0], strict=True)))
            assert before == [1.0]  # of rank 0
            # Its gradient, 2, is divided by the number of ranks.
            np.testing.assert_allclose(session.run(own), 1 - RATE * 2 / hvd.size(), rtol=1e-6)
            once = session.run(parameters)
            session.run(train, dict(zip(data, values[1], strict=True)))
            twice = session.run(parameters)
    close(once, descended(1))
    first, second = (numpy_average(at, [0, 1], step) for step, at in ((0, initial()), (1, descended(1))))
    close(twice, [p - RATE * (0.5 * a + b) for p, a, b in zip(once, first, second, strict=True)])


def test_in_a_monitored_session(run_ranks):
    run_ranks(2, in_a_monitored_session)


class KnowsItsLoss(v1.train.GradientDescentOptimizer):
    """Its gradients need no argument."""

    def __init__(self, parameters, data):
        super().__init__(RATE)
        self.parameters, self.data = parameters, data

    def compute_gradients(self, *, scale):
        loss = scale * loss_of(self.parameters, self.data)
        return super().compute_gradients(loss, self.parameters)


def without_a_loss():
    hvd.init()
    data = [tensor.numpy() for tensor in tensors(hvd.rank())]
    with tf.Graph().as_default():
        parameters = graph_variables(True)
        optimizer = hvd.DistributedOptimizer(KnowsItsLoss(parameters, data), sparse_as_dense=True)
        train = optimizer.apply_gradients(optimizer.compute_gradients(scale=1.0))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            close(session.run(parameters), descended(1))


def test_a_subclass_that_needs_no_loss(run_ranks):
    run_ranks(2, without_a_loss)


def of_version_1_in_version_2(in_graph):
    """An optimizer of tf.compat.v1 without a session, aggregating two passes."""
    hvd.init()
    parameters = variables()
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(RATE), backward_passes_per_step=2, average_aggregated_gradients=True
    )

    def one_pass(data):
        pairs = optimizer.compute_gradients(lambda: loss_of(parameters, data), parameters)
        optimizer.apply_gradients(pairs)

    run = tf.function(one_pass) if in_graph else one_pass
    for step in range(6):
        run(tensors(hvd.rank(), step))
        close(parameters, descended((step + 1) // 2, passes=2))


def test_of_version_1_in_version_2(run_ranks):
    for in_graph in (False, True):
        run_ranks(2, of_version_1_in_version_2, [in_graph])
