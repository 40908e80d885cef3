"""Gradient tapes in several ranks, against what numpy computes from the data of all of them."""

import numpy as np
import pytest
import tensorflow as tf
from least_squares import batch, close, initial, loss_of, numpy_average, numpy_gradients, tensors, variables

import horovod.tensorflow as hvd

FP16, BF16 = hvd.Compression.fp16, hvd.Compression.bf16


def reduced(parameters, data, **options):
    """The gradients of the whole job."""
    with tf.GradientTape() as tape:
        loss = loss_of(parameters, data)
    return hvd.DistributedGradientTape(tape, **options).gradient(loss, parameters)


def options_of_the_tape():
    """Every way of travelling, eagerly and in a tf.function."""
    hvd.init()
    parameters, ranks = variables(), list(range(hvd.size()))
    average = numpy_average(initial(), ranks)
    ways = [
        ({}, 1, 1e-5),
        ({"op": hvd.Sum}, hvd.size(), 1e-5),
        ({"sparse_as_dense": True}, 1, 1e-5),
        ({"groups": 1}, 1, 1e-5),
        ({"groups": 2, "sparse_as_dense": True}, 1, 1e-5),
        ({"groups": [parameters[1:], parameters[:1]], "sparse_as_dense": True}, 1, 1e-5),
        ({"gradient_predivide_factor": 4.0, "groups": [parameters[:2]]}, 1, 1e-5),
        ({"compression": FP16}, 1, 5e-3),
        ({"compression": BF16, "groups": 1}, 1, 5e-2),
        ({"compression": None, "device_dense": "/cpu:0", "device_sparse": "/cpu:0"}, 1, 1e-5),
    ]
    data = tensors(hvd.rank())
    for options, factor, tolerance in ways:
        in_graph = tf.function(lambda options=options: reduced(parameters, data, **options))
        for gradients in (reduced(parameters, data, **options), in_graph(), in_graph()):
            close(gradients, [factor * value for value in average], tolerance)
            assert isinstance(gradients[2], tf.IndexedSlices) != options.get("sparse_as_dense", False)


@pytest.mark.parametrize("np", [1, 3])
def test_options_of_the_tape(run_ranks, np):
    run_ranks(np, options_of_the_tape, timeout=120)


def other_reductions():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    parameters = variables()[:2]
    own = [numpy_gradients(initial(), each)[:2] for each in range(size)]
    table = tf.constant(initial()[2], tf.float32)
    for op, combine in ((hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod)):
        with tf.GradientTape() as tape:
            loss = loss_of([*parameters, table], tensors(rank))
        gradients = hvd.DistributedGradientTape(tape, op=op).gradient(loss, parameters)
        close(gradients, [combine(parts, axis=0) for parts in zip(*own, strict=True)], 1e-4)
    with pytest.raises(NotImplementedError, match="sparse_as_dense"):
        reduced(variables(), tensors(rank), op=hvd.Max)


def test_other_reductions(run_ranks):
    run_ranks(2, other_reductions)


def structures_and_missing_gradients():
    """What ``gradient`` returns has the structure of the sources; what has no gradient takes no part."""
    hvd.init()
    weight, bias, table = variables()
    unused = tf.Variable(1.0)
    average = numpy_average(initial(), list(range(hvd.size())))
    with tf.GradientTape(persistent=True) as plain:
        loss = loss_of([weight, bias, table], tensors(hvd.rank()))
    tape = hvd.DistributedGradientTape(plain)
    found = tape.gradient(loss, {"a": [unused, weight], "b": bias})
    assert found["a"][0] is None
    close([found["a"][1], found["b"]], average[:2])
    close([tape.gradient(loss, weight), tape.gradient(loss, [bias], use_generic_names=True)[0]], average[:2])
    zero = tape.gradient(loss, unused, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zero.numpy() == 0.0
    seeded = tape.gradient(loss, [weight], output_gradients=tf.constant(2.0 + hvd.rank()))
    own = [numpy_gradients(initial(), rank)[0] for rank in range(hvd.size())]
    close(seeded, [np.mean([(2 + rank) * value for rank, value in enumerate(own)], axis=0)])


def test_structures_and_missing_gradients(run_ranks):
    run_ranks(2, structures_and_missing_gradients)


def several_tapes():
    """Two models and two tapes in one function, so that gradients of equal names travel at once; the ranks
    have built and traced different things before.
    """
    hvd.init()
    rank, ranks = hvd.rank(), list(range(hvd.size()))
    for _ in range(rank):
        variables()
    first, second = variables(), variables()
    warm = tf.Variable(0.0)

    @tf.function
    def train(one, other):
        if hvd.rank() == 0:
            tf.cond(warm > 1, lambda: tf.print("warm"), lambda: tf.no_op())
        return both(one, other)

    def both(one, other):
        with tf.GradientTape(persistent=True) as tape:
            losses = [loss_of(first, one), 3 * loss_of(second, other)]
        tapes = [hvd.DistributedGradientTape(tape) for _ in losses]
        return [
            tape.gradient(loss, parameters)
            for tape, loss, parameters in zip(tapes, losses, (first, second), strict=True)
        ]

    for _ in range(rank):
        tf.function(lambda: loss_of(first, tensors(rank)))()
    for step in range(4):
        found = train(tensors(rank, step), tensors(rank, step + 10))
        close(found[0], numpy_average(initial(), ranks, step))
        close(found[1], [3 * value for value in numpy_average(initial(), ranks, step + 10)])


def test_several_tapes(run_ranks):
    run_ranks(3, several_tapes, timeout=120)


def each_gradient_is_an_operation(groups):
    """So that the first ones travel while the last ones are computed."""
    hvd.init()
    parameters, data = variables(), tensors(hvd.rank())
    step = tf.function(lambda: reduced(parameters, data, groups=groups, sparse_as_dense=True))
    operations = step.get_concrete_function().graph.get_operations()
    return sorted(op.type for op in operations if op.type.startswith("Horovod"))


def test_each_gradient_is_an_operation(run_ranks):
    assert run_ranks(2, each_gradient_is_an_operation, [None]) == [["HorovodAllreduce"] * 3] * 2
    assert run_ranks(2, each_gradient_is_an_operation, [2]) == [["HorovodGroupedAllreduce"] * 2] * 2


def local_sources():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    parameters, data = variables(), tensors(rank)
    own, average = numpy_gradients(initial(), rank), numpy_average(initial(), list(range(size)))
    for scale in (True, False):
        factor = size if scale else 1
        with tf.GradientTape(persistent=True) as plain:
            loss = loss_of(parameters, data)
        tape = hvd.DistributedGradientTape(plain, scale_local_gradients=scale)
        tape.register_local_source(parameters[0])
        tape.register_local_source(parameters[2])
        expected = [own[0] / factor, average[1], own[2] / factor]
        close(tape.gradient(loss, parameters), expected)
        local, shared = tape.get_local_and_global_gradients(loss, parameters)
        assert [variable for variable, _ in local] == [parameters[0], parameters[2]]
        assert [variable for variable, _ in shared] == [parameters[1]]
        close([gradient for _, gradient in local], [expected[0], expected[2]])
        close([gradient for _, gradient in shared], [average[1]])


def test_local_sources(run_ranks):
    run_ranks(2, local_sources)


def local_layers():
    """Of Keras; one of them has no weights yet when the tape is made."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    _, inputs, targets = tensors(rank)
    shared = tf.keras.layers.Dense(3, use_bias=False, kernel_initializer="ones")
    local = tf.keras.layers.Dense(3, use_bias=False, kernel_initializer="ones")
    plain = tf.GradientTape()
    tape = hvd.PartialDistributedGradientTape(plain, local_layers=local)
    with tape:
        loss = tf.reduce_sum((shared(inputs) + local(inputs) - targets) ** 2) / 2
    found = tape.gradient(loss, [*shared.trainable_weights, *local.trainable_weights])
    gradients = []
    for each in range(size):
        _, features, wanted = batch(each)
        residual = 2 * features @ np.ones((features.shape[1], 3)) - wanted
        gradients.append(features.T @ residual)
    close(found, [np.mean(gradients, axis=0), gradients[rank] / size], 1e-4)


def test_local_layers(run_ranks):
    run_ranks(2, local_layers)


def process_set():
    """Those outside of the set keep their gradients."""
    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    rank = hvd.rank()
    parameters, data = variables(), tensors(rank)
    expected = numpy_average(initial(), [0, 2]) if rank != 1 else numpy_gradients(initial(), 1)
    for options in ({}, {"groups": 1}, {"sparse_as_dense": True}):
        close(reduced(parameters, data, process_set=pair, **options), expected)
        in_graph = tf.function(lambda options=options: reduced(parameters, data, process_set=pair, **options))
        close(in_graph(), expected)


def test_process_set(run_ranks):
    run_ranks(3, process_set)


def mismatch():
    """The error names the variable, on all ranks; the next step works."""
    hvd.init()
    weight = tf.Variable(tf.ones((3 + hvd.rank(), 2)), name="model/dense_3/weight")
    fitting = tf.Variable([1.0 + hvd.rank()])

    @tf.function
    def step(variable):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable**2)
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    with pytest.raises(
        hvd.TensorMismatchError, match=r"DistributedGradientTape.* variable 0 'weight' \(rank 0"
    ):
        step(weight)
    close(step(fitting), [np.array([3.0])])


def test_mismatch(run_ranks):
    run_ranks(2, mismatch)
