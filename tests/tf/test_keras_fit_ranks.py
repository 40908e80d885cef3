"""Two processes that train one model end where one process with the batches of both ends: with Keras 3 on
TensorFlow and on torch, and with Keras 2.
"""

import importlib

import numpy as np
import pytest

RANKS, STEPS, ROWS, INPUTS = 2, 3, 4, 5
KINDS = {
    "run_ranks": ["horovod.tensorflow.keras", "keras"],
    "run_torch_keras_ranks": ["horovod.keras", "keras"],
    "run_legacy_keras_ranks": ["horovod.tensorflow.keras", "tf_keras"],
}
EVERY_KERAS = pytest.mark.parametrize("ranks", KINDS)
KERAS_3 = pytest.mark.parametrize("ranks", ["run_ranks", "run_torch_keras_ranks"])


def together(request, ranks, function, *arguments, **options):
    """The results of two ranks with one kind of Keras."""
    run = request.getfixturevalue(ranks)
    return run(RANKS, function, [*KINDS[ranks], *arguments], timeout=240, **options)


class Training:
    """What a rank needs: the adapter, Keras, the data of this rank and of all."""

    def __init__(self, adapter, package):
        self.hvd, self.keras = importlib.import_module(adapter), importlib.import_module(package)
        self.hvd.init()
        self.optimizers = self.keras.optimizers
        random = np.random.default_rng(5)
        self.inputs = random.integers(0, 6, size=(STEPS, RANKS, ROWS, INPUTS))
        self.targets = random.normal(size=(STEPS, RANKS, ROWS, 1)).astype("float32")

    def model(self, seed=0):
        """With dense gradients and, on TensorFlow, sparse ones."""
        self.keras.utils.set_random_seed(seed)
        layers = self.keras.layers
        parts = [
            layers.Embedding(6, 3, name="words"),
            layers.Flatten(),
            layers.Dense(4, activation="tanh", name="hidden"),
            layers.Dense(1, name="out"),
        ]
        return self.keras.Sequential([self.keras.Input((INPUTS,), dtype="int32"), *parts])

    def optimizer(self, name):
        """With something done to the gradients after they were reduced."""
        if name == "adam":
            return self.optimizers.Adam(0.05, clipnorm=0.1)
        if name == "legacy":
            return self.optimizers.legacy.SGD(0.05, momentum=0.9, clipvalue=0.1)
        if name == "scaled":
            inner = self.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=0.5)
            scaling = self.keras.mixed_precision.LossScaleOptimizer
            return scaling(inner, initial_scale=64.0)
        schedule = self.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
        return self.optimizers.SGD(
            schedule, momentum=0.9, nesterov=True, use_ema=True, ema_overwrite_frequency=2
        )

    def rows(self, array, ranks, steps):
        part = array[steps[0] : steps[1], ranks]
        return part.reshape(-1, array.shape[-1])

    def fit(self, model, optimizer=None, ranks=None, passes=1, epochs=2, steps=(0, STEPS)):
        """Trains on the batches of ``ranks``, by default of this one."""
        ranks = [self.hvd.rank()] if ranks is None else ranks
        if optimizer is not None:
            model.compile(optimizer, "mse")
        data = [self.rows(array, ranks, steps) for array in (self.inputs, self.targets)]
        size = ROWS * len(ranks) * passes
        model.fit(*data, batch_size=size, epochs=epochs, shuffle=False, verbose=0)
        return model

    def alone(self, optimizer, **options):
        """The model that one process gets from all batches."""
        return self.fit(self.model(), optimizer, ranks=list(range(RANKS)), **options)

    def weights(self, model):
        return np.concatenate([weight.ravel() for weight in model.get_weights()])

    def check(self, model, expected, tolerance=1e-5):
        """Equal bits on all ranks, and near what one process has."""
        mine = self.weights(model)
        assert len(set(self.hvd.allgather_object(mine.tobytes()))) == 1
        np.testing.assert_allclose(mine, self.weights(expected), rtol=tolerance, atol=tolerance)

    def state(self, model):
        """Of model and optimizer."""
        optimizer = model.optimizer.variables
        variables = [*model.weights, *(optimizer() if callable(optimizer) else optimizer)]
        return [np.asarray(variable.numpy()).tolist() for variable in variables]


def rank_trains_and_continues(adapter, package, kind, path):
    """Trains from this rank's own start, saves on rank 0, loads on both, goes on."""
    job = Training(adapter, package)
    hvd = job.hvd
    model = job.model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(job.optimizer(kind)), "mse")
    hvd.broadcast_variables(model.variables, 0)
    job.fit(model)
    job.check(model, job.alone(job.optimizer(kind)))
    if hvd.is_master():
        model.save(path)
    hvd.barrier()
    loaded = hvd.load_model(path)
    assert type(loaded.optimizer).__name__ == type(model.optimizer).__name__
    assert job.state(loaded) == job.state(model)
    # One step on the rows of this rank, of which the other's gradient must be part.
    whole = job.alone(job.optimizer(kind))
    job.check(job.fit(loaded, epochs=1), job.fit(whole, ranks=list(range(RANKS)), epochs=1))
    return job.state(loaded)


@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        ("adam", "run_ranks"),
        ("adam", "run_legacy_keras_ranks"),
        ("schedule", "run_ranks"),
        ("scaled", "run_torch_keras_ranks"),
        ("scaled", "run_legacy_keras_ranks"),
        pytest.param("adam", "run_torch_keras_ranks", marks=pytest.mark.full),
        pytest.param("schedule", "run_torch_keras_ranks", marks=pytest.mark.full),
        pytest.param("schedule", "run_legacy_keras_ranks", marks=pytest.mark.full),
        pytest.param("scaled", "run_ranks", marks=pytest.mark.full),
    ],
)
def test_training_and_going_on(request, ranks, kind, tmp_path):
    results = together(request, ranks, rank_trains_and_continues, kind, str(tmp_path / "model.keras"))
    assert results[0] == results[1]


def test_legacy_optimizers(request, tmp_path):
    """Of which Keras saves the state in files of the older format alone."""
    path = str(tmp_path / "model.h5")
    results = together(request, "run_legacy_keras_ranks", rank_trains_and_continues, "legacy", path)
    assert results[0] == results[1]


OPTIONS = {
    "sum": {"op": 1, "rate": 1 / RANKS},
    "predivide": {"gradient_predivide_factor": 2.0},
    "groups": {"groups": 2},
    "compression": {"compression": "fp16", "tolerance": 1e-3},
    "dense": {"sparse_as_dense": True},
    "passes": {"backward_passes_per_step": 3, "average_aggregated_gradients": True, "passes": 3},
    "sum of passes": {"backward_passes_per_step": 3, "passes": 3, "rate": 1 / 3},
}


def rank_trains_with_options(adapter, package):
    """With each of the options, the weights of one process."""
    job = Training(adapter, package)
    hvd = job.hvd
    for given in OPTIONS.values():
        options = dict(given)
        rate, passes = options.pop("rate", 1.0), options.pop("passes", 1)
        tolerance = options.pop("tolerance", 1e-5)
        if "compression" in options:
            options["compression"] = getattr(hvd.Compression, options["compression"])
        wrap = hvd.PartialDistributedOptimizer
        optimizer = wrap(job.optimizers.SGD(0.2 * rate, momentum=0.5), **options)
        model = job.fit(job.model(), optimizer)
        job.check(model, job.alone(job.optimizers.SGD(0.2, momentum=0.5), passes=passes), tolerance)
    groups = [job.model().trainable_variables[:2]]
    model = job.fit(job.model(), hvd.DistributedOptimizer(job.optimizers.SGD(0.2), groups=groups))
    job.check(model, job.alone(job.optimizers.SGD(0.2)))


@EVERY_KERAS
def test_options(request, ranks):
    together(request, ranks, rank_trains_with_options)


def rank_keeps_layers_to_itself(adapter, package):
    """The local layer's weights differ between ranks, the others do not."""
    job = Training(adapter, package)
    hvd, model = job.hvd, job.model()
    layer = model.get_layer("out")
    wrapped = hvd.PartialDistributedOptimizer(job.optimizers.SGD(0.1), local_layers=[layer])
    job.fit(model, wrapped)
    everybody = hvd.allgather_object([weight.tobytes() for weight in model.get_weights()])
    # A single step from equal weights: the local gradient is this rank's own, divided by the number of ranks.
    one, plain = job.model(), job.model()
    wrap = hvd.PartialDistributedOptimizer
    before = one.get_layer("out").get_weights()[0]
    job.fit(one, wrap(job.optimizers.SGD(0.1), local_layers=one.get_layer("out")), epochs=1, steps=(0, 1))
    job.fit(plain, job.optimizers.SGD(0.1), epochs=1, steps=(0, 1))
    mine, alone = (before - net.get_layer("out").get_weights()[0] for net in (one, plain))
    np.testing.assert_allclose(mine, alone / RANKS, rtol=1e-4, atol=1e-6)
    return [len(set(weight)) for weight in zip(*everybody, strict=True)]


@EVERY_KERAS
def test_local_layers(request, ranks):
    assert together(request, ranks, rank_keeps_layers_to_itself) == [[1, 1, 1, 2, 2]] * RANKS


def rank_trains_in_a_set(adapter, package):
    """Rank 0 in a set of its own, rank 1 in none."""
    job = Training(adapter, package)
    hvd = job.hvd
    hvd.shutdown()
    own = hvd.ProcessSet([0]) if hasattr(hvd, "ProcessSet") else None
    hvd.init(process_sets=[own])
    optimizer = hvd.PartialDistributedOptimizer(job.optimizers.SGD(0.1), process_set=own)
    model = job.fit(job.model(), optimizer)
    plain = job.fit(job.model(), job.optimizers.SGD(0.1))
    np.testing.assert_allclose(job.weights(model), job.weights(plain), rtol=1e-6, atol=1e-6)


@EVERY_KERAS
def test_ranks_that_train_alone(request, ranks):
    together(request, ranks, rank_trains_in_a_set)


def rank_overflows(adapter, package):
    """Rank 1 has a batch that overflows: no rank may make that step, and none waits for another."""
    job = Training(adapter, package)
    hvd = job.hvd
    job.keras.mixed_precision.set_global_policy("mixed_float16")
    model = job.model()
    model.compile(hvd.DistributedOptimizer(job.optimizers.SGD(0.01, momentum=0.9)), "mse")
    if hvd.rank() == 1:
        job.targets[1] = 1e30
    job.fit(model, epochs=1)
    scale = getattr(model.optimizer, "dynamic_scale", None)
    scale = model.optimizer.loss_scale if scale is None else scale
    finite = bool(np.isfinite(job.weights(model)).all())
    state = hvd.allgather_object(job.weights(model).tobytes())
    return [type(model.optimizer).__name__, finite, len(set(state)), float(scale.numpy())]


@EVERY_KERAS
def test_an_overflow_on_one_rank(request, ranks):
    results = together(request, ranks, rank_overflows)
    assert results[0] == results[1]
    name, finite, states, scale = results[0]
    assert name.startswith("LossScaleOptimizer")
    assert (finite, states) == (True, 1)
    assert scale < 2.0**15  # it has been halved


def ranks_that_have_built_more(adapter, package):
    """One rank has built a model before, so that Keras names weights by another number."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()

    class Scale(keras.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, inputs):
            return inputs * self.factor

    for _ in range(2 - hvd.rank()):
        model = keras.Sequential([keras.Input((1,)), Scale()])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.25)), "mse")
    model.fit(np.ones((1, 1)), np.full((1, 1), 2.0 + 4 * hvd.rank()), verbose=0)
    return model.get_weights()[0].tolist()


@KERAS_3
def test_ranks_may_have_built_more_models(request, ranks):
    assert together(request, ranks, ranks_that_have_built_more) == [[2.5]] * RANKS


def torch_ranks_differ():
    """The ranks compare before the first step what they reduce."""
    import keras

    import horovod.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1 + hvd.rank())])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    with pytest.raises(hvd.TensorMismatchError) as caught:
        model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    return str(caught.value)


def test_optimizers_on_torch_that_differ(run_torch_keras_ranks):
    texts = run_torch_keras_ranks(2, torch_ranks_differ, timeout=120)
    assert texts[0] == texts[1]
    assert "variable 0 'kernel' (rank 0: float32 (2, 1); rank 1: float32 (2, 2))" in texts[0]
