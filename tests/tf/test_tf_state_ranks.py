"""Variables, objects and means between several ranks."""

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

TYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.int8, tf.bool]


def variables_of_all_types(inplace):
    """Of every type and of Keras, scalars and empty ones; eagerly and in a tf.function. The ranks give them
    other names.
    """
    hvd.init()
    rank, root = hvd.rank(), hvd.size() - 1
    shapes = [(), (3,), (2, 0), (2, 2)]
    layer = tf.keras.layers.Dense(2)
    layer.build((None, 3))
    own = [tf.Variable(tf.cast(tf.fill(s, rank), t), name=f"mine{rank}") for t in TYPES for s in shapes]
    everything = [*own, *layer.variables]
    for broadcast in (
        lambda: hvd.broadcast_variables(everything, root, inplace=inplace),
        tf.function(lambda: hvd.broadcast_variables(everything, root, inplace=inplace)),
    ):
        for variable in everything:
            variable.assign(tf.cast(tf.fill(variable.shape, rank), variable.dtype))
        broadcast()
        for variable in everything:
            expected = np.full(variable.shape, root).astype(variable.numpy().dtype)
            np.testing.assert_array_equal(variable.numpy(), expected)


@pytest.mark.parametrize("inplace", [False, True])
def test_variables_of_all_types(run_ranks, inplace):
    run_ranks(3, variables_of_all_types, [inplace])


def variables_of_a_set():
    pair = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[pair])
    variable = tf.Variable(float(hvd.rank()))
    if pair.included():
        hvd.broadcast_variables([variable], 2, process_set=pair)
        with pytest.raises(ValueError, match="root_rank is 0"):
            hvd.broadcast_variables([variable], 0, process_set=pair)
    else:
        with pytest.raises(ValueError, match="not part of process set"):
            hvd.broadcast_variables([variable], 2, process_set=pair)
    return float(variable)


def test_variables_of_a_set(run_ranks):
    assert run_ranks(3, variables_of_a_set) == [0.0, 2.0, 2.0]


def only_one_rank_has_built_its_model():
    """All hear of it, before anything is sent; eagerly and in a graph of TensorFlow 1."""
    hvd.init()
    rank = hvd.rank()
    layer = tf.keras.layers.Dense(2)
    if rank == 1:
        layer.build((None, 3))
    weights = [tf.Variable(float(rank)), *layer.variables]
    texts = []
    for number, variables in ((1, weights), (0, weights[1:])):
        text = rf"nothing was sent.*number {number}, '.*kernel.*\(rank 0: nothing; rank 1: float32 \(3, 2\)"
        with pytest.raises(hvd.TensorMismatchError, match=text) as caught:
            hvd.broadcast_variables(variables, 0)
        texts.append(str(caught.value))
    with (
        tf.Graph().as_default(),
        pytest.raises(hvd.TensorMismatchError, match=r"number 0, 'one:0'.*nothing") as caught,
    ):
        for name in ["one"] * (1 - rank):
            tf.compat.v1.get_variable(name, ())
        hvd.broadcast_global_variables(0)
    texts.append(str(caught.value))
    odd = [weights[0], tf.Variable("text" if rank else 1.0, name="odd")]
    with pytest.raises(ValueError, match=r"rank 1: 'odd:0' cannot be broadcast, .*: its type is string"):
        hvd.broadcast_variables(odd, 1)
    assert float(weights[0]) == rank
    hvd.broadcast_variables(weights[:1], 0)
    return [*texts, float(weights[0])]


def test_only_one_rank_has_built_its_model(run_ranks):
    first, second = run_ranks(2, only_one_rank_has_built_its_model)
    assert first == second and first[-1] == 0


def objects():
    """Eagerly, and where a graph is built; of any size, and over a process set."""
    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    rank = hvd.rank()
    mine = {"rank": rank, "data": np.arange(10**rank)}
    theirs = hvd.broadcast_object(mine if rank == 2 else None, root_rank=2)
    assert theirs["data"].shape == (100,)
    with tf.Graph().as_default():
        assert hvd.broadcast_object_fn(root_rank=1, name="obj")(mine)["rank"] == 1
        gathered = hvd.allgather_object(mine)
    assert [len(each["data"]) for each in gathered] == [1, 10, 100]
    if pair.included():
        assert hvd.allgather_object(rank, process_set=pair) == [0, 1]
    with pytest.raises(ValueError, match="rank 1 cannot pickle"):
        hvd.broadcast_object((lambda: (yield))() if rank == 1 else None, root_rank=1)


def test_objects(run_ranks):
    run_ranks(3, objects)


def means():
    """Of numbers, arrays and tensors, named and unnamed; integers have a mean in floating point."""
    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    rank, mean = hvd.rank(), hvd.metric.get_global_mean
    assert mean(rank) == 1.0
    assert type(mean(rank + 0.5)) is float
    assert mean(10.0**rank, name="loss") == pytest.approx(37.0)
    array = mean(np.array([[0, 1], [1, 0]]) + 3 * rank)
    np.testing.assert_array_equal(array, [[3, 4], [4, 3]])
    half = mean(np.array([rank], np.float16))
    assert (half.dtype, half[0]) == (np.float16, 1)
    tensor = mean(tf.constant([rank, 2 * rank]), name="tensor")
    np.testing.assert_array_equal(tensor, [1.0, 2.0])
    assert mean(tf.Variable(float(rank))).numpy() == 1.0
    in_graph = tf.function(lambda value: mean(value, name="in_graph"))
    assert in_graph(tf.constant(float(rank), tf.float64)).numpy() == 1.0
    if pair.included():
        assert mean(rank, process_set=pair) == 1.0
        assert mean(tf.constant(rank * 2.0), process_set=pair).numpy() == 2.0
    with pytest.raises(ValueError, match=r"different shapes, in rank order \[\(0,\), \(1,\), \(2,\)\]"):
        mean(np.zeros(rank))


def test_means(run_ranks):
    run_ranks(3, means)


def reductions_of_slices():
    """Of several in a group with dense tensors; integers are divided as those of a dense tensor are."""
    hvd.init()
    rank = hvd.rank()

    def slices(values, rows):
        return tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([3, 1]))

    given = [slices([[1.0 + rank]], [rank]), tf.constant([2.0 * rank]), slices([[5], [-5 - rank]], [2, 0])]
    for run in (
        lambda: hvd.grouped_allreduce(given, name="mixed"),
        tf.function(lambda: hvd.grouped_allreduce(given)),
        lambda: [hvd.allreduce(each) for each in given],
        tf.function(lambda: [hvd.allreduce(each) for each in given]),
    ):
        first, dense, integers = run()
        assert first.indices.numpy().tolist() == [0, 1]
        assert first.values.numpy().tolist() == [[0.5], [1.0]]
        assert dense.numpy().tolist() == [1.0]
        assert tf.convert_to_tensor(integers).numpy().tolist() == [[-5], [0], [5]]
    total = hvd.allreduce(given[0], op=hvd.Sum)
    assert total.values.numpy().tolist() == [[1.0], [2.0]]


def test_reductions_of_slices(run_ranks):
    run_ranks(2, reductions_of_slices)
