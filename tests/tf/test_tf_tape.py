"""How gradients are named, grouped and prepared, and what a wrapped tape still can do, in one process. The
operations are played by functions that note how they are called.
"""

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.training.agreement import own_name
from horovod.common.training.gradient_options import GradientSettings
from horovod.tensorflow import gradient_reduction, mpi_ops, reductions
from horovod.tensorflow.gradient_reduction import GradientReducer, LocalSources
from horovod.tensorflow.graph import as_node_name, identity


def reducer_of(name, **options):
    return GradientReducer(name, GradientSettings(**options))


@pytest.fixture
def sent(monkeypatch):
    """The operations that were started: (name, types, options), in a job that seems to have two ranks. What
    is reduced comes back doubled.
    """
    hvd.init()
    notes = []

    def double(tensors, name, *options):
        notes.append((name, [tensor.dtype.name for tensor in tensors], options))
        return [2 * tensor for tensor in tensors]

    def gather(tensors, name, **options):
        notes.append((name, [tensor.dtype.name for tensor in tensors], options))
        return [tf.concat([tensor, tensor], 0) for tensor in tensors]

    monkeypatch.setattr(gradient_reduction, "takes_part", lambda process_set: True)
    for module in (gradient_reduction, reductions):
        monkeypatch.setattr(module, "size_of", lambda process_set, dtype: tf.constant(2, dtype))
    monkeypatch.setattr(mpi_ops, "_grouped_allreduce", double)
    monkeypatch.setattr(mpi_ops, "_allreduce", lambda tensor, *options: double([tensor], *options)[0])
    monkeypatch.setattr(mpi_ops, "grouped_allgather", gather)
    return notes


def parts():
    """Gradients and variables: two dense ones, a missing one, a sparse one, another dense one."""
    slices = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([0, 1]), tf.constant([4, 3]))
    gradients = [tf.constant([1.0]), tf.constant([[2.0]]), None, slices, tf.constant(3.0, tf.float64)]
    names = ("net/dense_1/kernel", "net/dense_1/bias", "unused", "words/embeddings_3", "a b")
    shapes = ((1,), (1, 1), (), (4, 3), ())
    variables = [
        tf.Variable(tf.zeros(shape), name=as_node_name(name))
        for shape, name in zip(shapes, names, strict=True)
    ]
    return gradients, variables


def in_graph(reducer, gradients, variables):
    """The reduced gradients, from a tf.function that is traced twice."""
    for _ in range(2):
        step = tf.function(lambda: [g for g in reducer(gradients, variables) if g is not None])
        results = step()
    return results


def names_of(sent):
    return [name for name, _, _ in sent]


def test_names_tell_position_and_variable(sent):
    gradients, variables = parts()
    in_graph(reducer_of("My optimizer"), gradients, variables)
    expected = ["3.words_embeddings", "0.net_dense_1_kernel", "1.net_dense_1_bias", "4.a_b"]
    assert names_of(sent) == [f"My_optimizer.{name}" for name in expected] * 2


def test_generic_names(sent):
    gradients, variables = parts()
    reducer_of("tape")(gradients, variables, use_generic_names=True)
    in_graph(lambda *given: reducer_of("tape")(*given, use_generic_names=True), gradients, variables)
    assert names_of(sent)[-4:] == ["tape.3", "tape.0", "tape.1", "tape.4"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b/kernel:0", "kernel"),
        ("kernel_12:0", "kernel"),
        ("Variable:0", "Variable"),
        ("", ""),
    ],
)
def test_own_name(name, expected):
    class Named:
        pass

    variable = Named()
    variable.name = name
    assert own_name(variable) == expected


def test_eagerly_all_travel_together(sent):
    gradients, variables = parts()
    results = reducer_of("tape")(gradients, variables)
    assert [(name, types) for name, types, _ in sent] == [
        ("tape.3.words_embeddings", ["float32", "int32"]),
        ("tape.0.net_dense_1_kernel and 2 more", ["float32", "float32", "float64"]),
    ]
    assert results[2] is None
    np.testing.assert_array_equal(tf.convert_to_tensor(results[3]).numpy()[:3, 0], [1, 1, 0])
    assert [results[i].numpy().item() for i in (0, 1, 4)] == [2, 4, 6]


def test_groups(sent):
    gradients, variables = parts()
    slices = ("tape.3.words_embeddings", 2)
    kernel, bias, other = "tape.0.net_dense_1_kernel", "tape.1.net_dense_1_bias", "tape.4.a_b"
    lists = [[variables[4], variables[2]], [variables[0]]]
    for groups, expected in (
        (2, [(f"{kernel} and 1 more", 2), (other, 1)]),
        (9, [(kernel, 1), (bias, 1), (other, 1)]),
        (lists, [(bias, 1), (other, 1), (kernel, 1)]),
    ):
        sent.clear()
        in_graph(reducer_of("tape", groups=groups), gradients, variables)
        assert [(name, len(types)) for name, types, _ in sent] == [slices, *expected] * 2


def test_sparse_as_dense_travels_as_the_others(sent):
    gradients, variables = parts()
    results = reducer_of("tape", sparse_as_dense=True, groups=1)(gradients, variables)
    assert [(name, len(types)) for name, types, _ in sent] == [("tape.0.net_dense_1_kernel and 3 more", 4)]
    np.testing.assert_array_equal(results[3].numpy()[:, 0], [2, 2, 0, 0])


def test_compression_and_factors(sent):
    gradients, variables = parts()
    reducer = reducer_of(
        "tape", compression=hvd.Compression.fp16, op=hvd.Average, gradient_predivide_factor=4.0
    )
    results = reducer(gradients, variables)
    (_, slices, of_slices), (_, dense, of_dense) = sent
    assert (slices, dense) == (["float32", "int32"], ["float16"] * 3)
    assert "prescale_factor" not in of_slices
    assert of_dense[:3] == (hvd.Average, 0.25, 4.0)  # and both factors
    assert [results[i].dtype for i in (0, 1, 4)] == [tf.float32, tf.float32, tf.float64]


def test_compression_touches_no_integers_and_nothing_that_is_small_already(sent):
    for compression, name in ((hvd.Compression.fp16, "float16"), (hvd.Compression.bf16, "bfloat16")):
        sent.clear()
        mixed = [tf.constant([1]), tf.constant([0.5]), tf.constant([1.5], tf.bfloat16)]
        results = hvd.grouped_allreduce(mixed, compression=compression, op=hvd.Sum)
        assert sent[0][1] == ["int32", name, "bfloat16"]  # as float16 it would have a smaller range
        assert [(r.dtype, float(r[0])) for r in results] == [(t.dtype, 2 * float(t[0])) for t in mixed]


def test_local_sources(sent):
    gradients, variables = parts()
    for scale, factor in ((True, 2), (False, 1)):
        sources = LocalSources(hvd.global_process_set, scale)
        for variable in (variables[0], variables[2], variables[3]):
            sources.register(variable)
        sent.clear()
        results = sources.reduce(reducer_of("tape"), gradients, variables)
        assert [(name, len(types)) for name, types, _ in sent] == [("tape.1.net_dense_1_bias and 1 more", 2)]
        assert results[0].numpy() == 1 / factor
        assert results[2] is None
        assert results[3].values.numpy()[0, 0] == 1 / factor
        assert results[1].numpy() == 4


def test_a_keras_variable_and_the_one_inside_are_one():
    layer = tf.keras.layers.Dense(2)
    layer.build((None, 3))
    kernel = layer.kernel
    if isinstance(kernel, tf.Variable):
        pytest.skip("the variables of Keras 2 are TensorFlow's")
    assert identity(kernel) == identity(kernel.value) != identity(layer.bias)
    assert own_name(kernel) == "kernel"


def test_alone_nothing_travels():
    hvd.init()
    gradients, variables = parts()
    before = hvd.counters()["tensors"]
    results = reducer_of("tape", compression=hvd.Compression.fp16, groups=2)(gradients, variables)
    assert hvd.counters()["tensors"] == before
    assert results[3] is gradients[3]
    dense = reducer_of("tape", sparse_as_dense=True)(gradients, variables)
    assert isinstance(dense[3], tf.Tensor)


def test_a_wrapped_tape_is_the_tape():
    hvd.init()

    class Named(tf.GradientTape):
        label = "mine"

    variable = tf.Variable([1.0, 2.0])
    plain = Named(persistent=True)
    with plain:
        loss = tf.reduce_sum(variable**2)
    tape = hvd.DistributedGradientTape(plain)
    assert isinstance(tape, Named)
    assert type(tape).__name__ == "Named"
    assert tape.label == "mine"
    with tape, tape.stop_recording():  # more of the same
        variable + 1
    with tape:
        more = tf.reduce_sum(variable**3)
    assert [v.ref() for v in plain.watched_variables()] == [variable.ref()]
    for either in (plain, tape):
        np.testing.assert_array_equal(either.gradient(loss, variable), [2, 4])
        np.testing.assert_array_equal(either.gradient(more, variable), [3, 12])
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedGradientTape(tape)


def test_jacobians_stay_local(sent):
    variable = tf.Variable([1.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        values = variable**2
        batch = tf.stack([values, values])
        tape.watch(batch)
        squares = batch**2
    np.testing.assert_array_equal(tape.jacobian(values, variable), [[2, 0], [0, 4]])
    assert tape.batch_jacobian(squares, batch).shape == (2, 2, 2)
    assert sent == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, ValueError, "op != Average"),
        ({"op": 7}, ValueError, "op=7"),
        ({"groups": -1}, ValueError, "non-negative integer or a list of lists"),
        ({"groups": [1]}, ValueError, "non-negative integer or a list of lists"),
        ({"groups": "2"}, ValueError, "non-negative integer or a list of lists"),
        ({"compression": {}}, TypeError, r"hvd\.Compression\.fp16"),
        ({"compression": hvd.Compression.fp16()}, TypeError, r"hvd\.Compression\.fp16"),
        ({"process_set": [0]}, TypeError, "ProcessSet"),
    ],
)
def test_wrong_options(options, error, text):
    hvd.init()
    variable = tf.Variable(1.0)
    with tf.GradientTape() as plain:
        loss = variable**2
    with pytest.raises(error, match=text):
        hvd.DistributedGradientTape(plain, **options).gradient(loss, variable)


def test_wrong_arguments():
    hvd.init()
    variable = tf.Variable(1.0)
    with pytest.raises(ValueError, match="only appear once"):
        hvd.DistributedGradientTape(tf.GradientTape(), groups=[[variable], [variable]])
    with pytest.raises(ValueError, match=r"tf\.GradientTape, not"):
        hvd.DistributedGradientTape(None)
    with pytest.raises(ValueError, match="Keras layers, found"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[variable])
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedGradientTape(tf.GradientTape(), num_groups=2)


def test_slices_that_cannot_be_reduced():
    hvd.init()
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]))
    for options in ({"op": hvd.Max}, {"op": hvd.Adasum}, {"prescale_factor": 2.0}, {"postscale_factor": 0.5}):
        with pytest.raises(NotImplementedError, match="sparse_as_dense"):
            hvd.allreduce(slices, **options)
        with pytest.raises(NotImplementedError, match="sparse_as_dense"):
            hvd.grouped_allreduce([tf.ones(2), slices], **options)
    for function, given in ((hvd.reducescatter, slices), (hvd.grouped_reducescatter, [slices])):
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            function(given)


def test_any_name_can_be_given_in_a_graph():
    hvd.init()

    @tf.function
    def graph(value):
        parts = [
            hvd.allreduce(value, name=name, ignore_name_scope=True) for name in ("a/w:0", "b/w:0", "_", "a b")
        ]
        return tf.add_n([*parts, *hvd.grouped_allreduce([value, value], name="c/w")])

    assert graph(tf.constant(1.0)).numpy() == 6
    operations = graph.get_concrete_function(tf.constant(1.0)).graph.get_operations()
    names = [op.name for op in operations if op.type.startswith("Horovod")]
    assert names == ["a_w_0", "b_w_0", "HorovodAllreduce", "a_b", "c_w"]
