"""SyncBatchNormalization against BatchNormalization of the same Keras on all ranks' batches together."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

# Rows of each rank; one has none.
ROWS = [3, 5, 0]
CASES = [
    # Shape of a row, axis of the channels.
    ((4,), -1),
    ((6, 4), -1),
    ((5, 3, 4), -1),
    ((4, 5, 3), 1),
]


def is_old_keras() -> bool:
    return not str(getattr(tf.keras, "__version__", "2")).startswith("3.")


def plain(**options: Any) -> Any:
    unfused = {"fused": False} if is_old_keras() else {}
    return tf.keras.layers.BatchNormalization(**unfused, **options)


def layers(shape: tuple[int, ...], axis: int) -> tuple[Any, Any]:
    """A plain layer and one of ours, with the same random parameters and statistics."""
    both = plain(axis=axis, momentum=0.9), hvd.SyncBatchNormalization(axis=axis, momentum=0.9)
    random = np.random.default_rng(7)
    weights = [random.uniform(0.5, 2.0, shape[axis - 1 if axis > 0 else axis]) for _ in range(4)]
    for layer in both:
        layer.build((None, *shape))
        layer.set_weights(weights)
    return both


def batches(shape: tuple[int, ...], size: int) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal((ROWS[rank], *shape)).astype(np.float32) * 2 + 5 for rank in range(size)]


def train(layer: Any, batch: np.ndarray, weight: np.ndarray, mask: Any = None) -> list[tf.Tensor]:
    """Output, gradients of input, gamma and beta, from a loss that weighs each element of the output."""
    values = tf.constant(batch)
    arguments = {} if mask is None else {"mask": tf.constant(mask)}
    with tf.GradientTape() as tape:
        tape.watch(values)
        output = layer(values, training=True, **arguments)
        loss = tf.reduce_sum(output * weight)
    return [output, *tape.gradient(loss, [values, *layer.trainable_variables])]


def check_case(shape: tuple[int, ...], axis: int, in_graph: bool, masked: bool = False) -> None:
    rank, size = hvd.rank(), hvd.size()
    reference, ours = layers(shape, axis)
    inputs = batches(shape, size)
    start = sum(ROWS[:rank])
    mine = slice(start, start + ROWS[rank])
    together = np.concatenate(inputs)
    random = np.random.default_rng(5)
    weight = random.standard_normal(together.shape).astype(np.float32)
    mask = random.random(together.shape[:-1]) < 0.7 if masked else None
    own = (inputs[rank], weight[mine], mask[mine] if masked else None)
    run = tf.function(lambda: train(ours, *own), autograph=False) if in_graph else lambda: train(ours, *own)
    output, of_input, of_gamma, of_beta = run()
    expected = [part.numpy() for part in train(reference, together, weight, mask)]
    close = {"rtol": 1e-3, "atol": 2e-4} if masked else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(output.numpy(), expected[0][mine], **close)
    np.testing.assert_allclose(of_input.numpy(), expected[1][mine], **close)
    for gradient, whole in ((of_gamma, expected[2]), (of_beta, expected[3])):
        total = hvd.allreduce(gradient, op=hvd.Sum).numpy()
        np.testing.assert_allclose(total, whole, rtol=1e-3, atol=1e-4)
    for mean, wanted in zip(ours.get_weights()[2:], reference.get_weights()[2:], strict=True):
        np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-5)
    evaluated = ours(tf.constant(inputs[0]), training=False).numpy()
    np.testing.assert_allclose(evaluated, reference(tf.constant(inputs[0]), training=False), **close)


def ranks_normalize() -> None:
    hvd.init()
    for number, (shape, axis) in enumerate(CASES):
        check_case(shape, axis, in_graph=number % 2 == 0)
        check_case(shape, axis, in_graph=number % 2 == 1)
    check_case((6, 4), -1, in_graph=False, masked=True)
    layer_is_a_layer()
    statistics_of_a_great_mean()


def statistics_of_a_great_mean() -> None:
    """A variance of 1 beside a mean of 10,000, of whose square float32 has no digits left, keeps two."""
    random = np.random.default_rng(11)
    inputs = [random.standard_normal((400, 2)) + 1e4 + r for r in range(hvd.size())]
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer(tf.constant(inputs[hvd.rank()], tf.float32), training=True)
    wanted = np.concatenate(inputs).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(layer.moving_variance.numpy(), wanted.var(axis=0), rtol=1e-2)
    np.testing.assert_allclose(layer.moving_mean.numpy(), wanted.mean(axis=0), rtol=1e-6)


def layer_is_a_layer() -> None:
    """Its class, its errors, and what is left of it in a configuration."""
    assert issubclass(hvd.SyncBatchNormalization, tf.keras.layers.BatchNormalization)
    assert hvd.SyncBatchNormalization is hvd.SyncBatchNormalization
    for fused in (True, None):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=fused)
    layer = hvd.SyncBatchNormalization(momentum=0.7, name="mine")
    again = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert (again.momentum, again.name, again.process_set) == (0.7, "mine", hvd.global_process_set)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.full), 3])
def test_keras_3(run_ranks, ranks: int) -> None:
    run_ranks(ranks, ranks_normalize)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.full)])
def test_old_keras(run_legacy_keras_ranks, ranks: int) -> None:
    run_legacy_keras_ranks(ranks, ranks_normalize)


def ranks_normalize_in_a_set(folder: str) -> list[float]:
    """The ranks 0 and 2 of three, also with a layer that was saved; returns the moving mean."""
    members = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[members])
    if not members.included():
        return []
    layer = hvd.SyncBatchNormalization(momentum=0.0, process_set=members)
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), layer])
    file = f"{folder}/{hvd.rank()}.keras"
    model.save(file)
    model(tf.fill((4, 2), 1.0 + hvd.rank()), training=True)
    loaded = tf.keras.models.load_model(file).layers[-1]
    copied = tf.keras.models.clone_model(model).layers[-1]
    for other in (loaded, copied):
        assert other.process_set is members
        other(tf.fill((4, 2), 1.0 + hvd.rank()), training=True)
        assert other.moving_mean.numpy().tolist() == layer.moving_mean.numpy().tolist()
    return layer.moving_mean.numpy().tolist()


def test_a_process_set(run_ranks, tmp_path) -> None:
    assert run_ranks(3, ranks_normalize_in_a_set, [str(tmp_path)]) == [[2.0, 2.0], [], [2.0, 2.0]]


def test_a_process_set_with_old_keras(run_legacy_keras_ranks, tmp_path) -> None:
    results = run_legacy_keras_ranks(3, ranks_normalize_in_a_set, [str(tmp_path)])
    assert results == [[2.0, 2.0], [], [2.0, 2.0]]


def ranks_fit() -> list[list[float]]:
    """Returns the weights that training gives on equal parts of the data."""
    hvd.init()
    random = np.random.default_rng(2)
    data, labels = random.standard_normal((32, 6)).astype("f4"), random.standard_normal((32, 1)).astype("f4")
    tf.keras.utils.set_random_seed(1)

    def trained(norm: Any, part: slice, wrap: bool) -> np.ndarray:
        dense = [tf.keras.layers.Dense(n, kernel_initializer="ones") for n in (3, 1)]
        model = tf.keras.Sequential([tf.keras.layers.Input((6,)), dense[0], norm, dense[1]])

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(data[part], training=True) - labels[part]))
            tape = hvd.DistributedGradientTape(tape) if wrap else tape
            gradients = tape.gradient(loss, model.trainable_variables)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(0.1 * gradient)

        for _ in range(5):
            step()
        return np.concatenate([w.ravel() for w in model.get_weights()])

    each = 32 // hvd.size()
    mine = slice(hvd.rank() * each, (hvd.rank() + 1) * each)
    ours = trained(hvd.SyncBatchNormalization(), mine, wrap=True)
    np.testing.assert_allclose(ours, trained(plain(), slice(0, 32), wrap=False), rtol=2e-3, atol=2e-4)
    return ours.tolist()


def test_training_is_that_of_one_process(run_ranks) -> None:
    results = run_ranks(2, ranks_fit)
    assert results[0] == results[1]


@pytest.mark.parametrize("elastic", ["0", "1"])
def test_a_graph_of_one_rank_is_for_those_to_come(monkeypatch: pytest.MonkeyPatch, elastic: str) -> None:
    """In an elastic job, where it is kept."""
    hvd.init()
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    layer = hvd.SyncBatchNormalization()
    graph = tf.function(lambda x: layer(x, training=True)).get_concrete_function(tf.ones((4, 2))).graph
    gathers = [each for each in graph.get_operations() if each.type == "HorovodAllgather"]
    assert bool(gathers) == (elastic == "1")


def ranks_normalize_beside_a_set_of_one() -> None:
    """No rank can come to a process set, so who is outside of it normalises alone, as ever."""
    alone = hvd.ProcessSet([0])
    hvd.init(process_sets=[alone])
    own = hvd.SyncBatchNormalization(process_set=alone)
    batch = tf.random.normal((4, 2)) * (1.0 + hvd.rank())
    np.testing.assert_allclose(own(batch, training=True), plain()(batch, training=True), rtol=1e-5, atol=1e-5)


def test_a_set_of_one_rank_in_an_elastic_job(run_ranks) -> None:
    run_ranks(2, ranks_normalize_beside_a_set_of_one, env={"HOROVOD_ELASTIC": "1"})
