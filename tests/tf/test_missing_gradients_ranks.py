"""Ranks that lack the gradients of different variables in one step, and variables that are a rank's own.

The variables have one shape, so that an operation that takes one for another goes unnoticed by the core.
"""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

EVERY_KERAS = pytest.mark.parametrize(
    ("ranks", "adapter", "package"),
    [
        ("run_ranks", "horovod.tensorflow.keras", "keras"),
        ("run_torch_keras_ranks", "horovod.keras", "keras"),
        ("run_legacy_keras_ranks", "horovod.tensorflow.keras", "tf_keras"),
    ],
)

# For each step what rank 0 and rank 1 use of the variables a, b, c and d; nobody ever uses d.
STEPS = [("abc", "abc"), ("ac", "bc"), ("ac", "ac"), ("a", "bc"), ("c", "c"), ("abc", "a")]
FACTORS = {"a": 1.0, "b": 100.0, "c": 10000.0, "d": 0.0}


def expected_of(step):
    """The average gradient of each variable, None where no rank has any."""
    used = STEPS[step]
    counts = {name: sum(name in parts for parts in used) for name in FACTORS}
    return [FACTORS[name] * count / len(used) if count else None for name, count in counts.items()]


def loss_of(parameters, parts):
    return tf.add_n([FACTORS[name] * tf.reduce_sum(parameters["abcd".index(name)]) for name in parts])


def numbers(gradients):
    return [
        None if each is None else float(np.array(tf.convert_to_tensor(each)).flat[0]) for each in gradients
    ]


def tapes(options):
    hvd.init()
    parameters = [tf.Variable([0.0]) for _ in FACTORS]

    def step(parts):
        with tf.GradientTape() as tape:
            loss = loss_of(parameters, parts)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, parameters)

    traced = tf.function(step)
    for number, parts in enumerate(STEPS):
        mine, expected = parts[hvd.rank()], expected_of(number)
        assert numbers(step(mine)) == expected, number
        in_graph = numbers(traced(mine))  # decided when it was made, by all ranks: zeros for None
        assert in_graph[3] is None and in_graph[:3] == [each or 0.0 for each in expected[:3]], number


@pytest.mark.parametrize("options", [{}, {"groups": 2}])
def test_tapes(run_ranks, options):
    run_ranks(2, tapes, [options], timeout=120)


def tapes_after_a_join():
    """Rank 1 joins early, and so does not know that nobody has had a gradient of b since."""
    hvd.init()
    parameters = [tf.Variable([0.0]) for _ in FACTORS]
    for epoch in (("abc", "a", "a"), ("a", "abc")):
        for parts in epoch if hvd.rank() == 0 else epoch[:1]:
            with tf.GradientTape() as tape:
                loss = loss_of(parameters, parts)
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, parameters)
            assert [each is None for each in gradients] == [name not in parts for name in FACTORS]
        hvd.join()


def test_tapes_after_a_join(run_ranks):
    run_ranks(2, tapes_after_a_join, timeout=120)


def tapes_of_which_a_rank_has_made_none():
    """Rank 1 has no data in the first epoch, and so has agreed on nothing."""
    hvd.init()
    parameters = [tf.Variable([1.0]) for _ in range(2)]
    for epoch in range(3):
        if hvd.rank() == 0 or epoch > 0:
            with tf.GradientTape() as tape:
                loss = tf.add_n(parameters)
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, parameters)
            assert numbers(gradients) == [0.5 if epoch == 0 else 1.0] * 2
        hvd.join()


def test_tapes_of_which_a_rank_has_made_none(run_ranks):
    run_ranks(2, tapes_of_which_a_rank_has_made_none, timeout=120)


def tapes_that_add():
    hvd.init()
    first, second = tf.Variable([1.0]), tf.Variable([1.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((first if hvd.rank() else second) * (3.0 + hvd.rank()))
    found = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, [first, second])
    assert numbers(found) == [4.0, 3.0]


def test_tapes_that_add(run_ranks):
    run_ranks(2, tapes_that_add)


def phases_of_one_function():
    """Each trains other variables of one list, on all ranks alike: the others are left alone."""
    hvd.init()
    parameters = [tf.Variable([0.0]) for _ in FACTORS]

    @tf.function
    def step(parts, rows):
        with tf.GradientTape() as tape:
            loss = loss_of(parameters, parts) + 0.0 * tf.reduce_sum(rows)
        return hvd.DistributedGradientTape(tape).gradient(loss, parameters)

    for count, parts in enumerate(["a", "b", "a", "b", "bc"]):
        rows = tf.ones(count if hvd.rank() else 3)  # rank 1 makes its graphs anew
        expected = [FACTORS[name] if name in parts else None for name in FACTORS]
        assert numbers(step(parts, rows)) == expected


def test_phases_of_one_function(run_ranks):
    run_ranks(2, phases_of_one_function, timeout=120)


def kinds_of_gradients():
    """Sparse on one rank only, and with other indices, and dense on another."""
    hvd.init()

    def gradients(kind, table, other):
        with tf.GradientTape() as tape:
            rows = {
                "none": lambda: other * 0.0,
                "dense": lambda: table,
                "int32": lambda: tf.nn.embedding_lookup(table, tf.constant([1], tf.int32)),
                "int64": lambda: tf.nn.embedding_lookup(table, tf.constant([1], tf.int64)),
            }[kind]()
            loss = 2.0 * tf.reduce_sum(rows)
        return hvd.DistributedGradientTape(tape).gradient(loss, [table, other])[0]

    pairs = [("int32", "none"), ("none", "int64"), ("int32", "int64"), ("dense", "int64")]
    for columns, both in enumerate(pairs, 1):
        table, other = (tf.Variable(tf.ones((4, columns))) for _ in range(2))
        row = np.zeros((4, columns))
        row[1] = 2
        parts = {"none": 0 * row, "dense": np.full_like(row, 2), "int32": row, "int64": row}
        for run in (gradients, tf.function(gradients)):
            found = run(both[hvd.rank()], table, other)
            assert isinstance(found, tf.IndexedSlices) == ("dense" not in both)
            np.testing.assert_allclose(
                np.array(tf.convert_to_tensor(found)), np.mean([parts[each] for each in both], axis=0)
            )


def test_kinds_of_gradients(run_ranks):
    run_ranks(2, kinds_of_gradients, timeout=120)


def optimizers(adapter, package, options):
    """Momentum moves what some rank has a gradient of, and leaves alone the rest."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    passes = options.get("backward_passes_per_step", 1)
    made = keras.optimizers.SGD(1.0, momentum=0.5)
    optimizer = hvd.PartialDistributedOptimizer(made, **options)  # that of horovod.keras takes all options
    if package == "keras":
        parameters = [keras.Variable(np.zeros(2, "float32"), name="w") for _ in FACTORS]
    else:
        parameters = [tf.Variable(np.zeros(2, "float32"), name="w") for _ in FACTORS]
    as_tensor = getattr(keras, "ops", tf).convert_to_tensor
    values, velocities = np.zeros(4), np.zeros(4)
    for number, parts in enumerate(STEPS):
        for _ in range(passes):
            gradients = [
                as_tensor(np.full(2, FACTORS[name], "float32")) if name in parts[hvd.rank()] else None
                for name in FACTORS
            ]
            optimizer.apply_gradients(zip(gradients, parameters, strict=True))
        for place, gradient in enumerate(expected_of(number)):
            if gradient is not None:
                velocities[place] = 0.5 * velocities[place] - passes * gradient
                values[place] += velocities[place]
        found = [
            float(np.array(each.numpy() if package != "keras" else keras.ops.convert_to_numpy(each))[0])
            for each in parameters
        ]
        np.testing.assert_allclose(found, values, rtol=1e-6, err_msg=str(number))


@EVERY_KERAS
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"backward_passes_per_step": 2}])
def test_optimizers(request, ranks, adapter, package, options):
    run = request.getfixturevalue(ranks)
    run(2, optimizers, [adapter, package, options], timeout=120)


def programs_that_leave_them_out(adapter, package):
    """Of what they give to the optimizer, as long as it knows all from ``build``."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    is_older = package == "tf_keras"
    make, as_tensor = (
        (tf.Variable, tf.constant) if is_older else (keras.Variable, keras.ops.convert_to_tensor)
    )
    plain, scaled = keras.optimizers.SGD(1.0), keras.optimizers.SGD(1.0)
    for inner in (plain,) if is_older else (plain, keras.optimizers.LossScaleOptimizer(scaled)):
        optimizer = hvd.DistributedOptimizer(inner)
        optimizer.build(parameters := [make(np.zeros(1, "float32"), name="w") for _ in FACTORS])
        scale = float(np.array(getattr(optimizer, "dynamic_scale", 1.0)))
        for number, parts in enumerate(STEPS):
            before = [float(each.numpy()[0]) for each in parameters]
            optimizer.apply_gradients(
                (as_tensor(np.full(1, scale * FACTORS[name], "float32")), parameter)
                for name, parameter in zip(FACTORS, parameters, strict=True)
                if name in parts[hvd.rank()]
            )
            after = [float(each.numpy()[0]) for each in parameters]
            steps = [old - new for old, new in zip(before, after, strict=True)]
            assert steps == [each or 0.0 for each in expected_of(number)], number


@EVERY_KERAS
def test_programs_that_leave_them_out(request, ranks, adapter, package):
    request.getfixturevalue(ranks)(2, programs_that_leave_them_out, [adapter, package], timeout=120)


def older_optimizers():
    """Keras 2 drops what has no gradient on this rank before it has the others aggregated."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    keras = tf.keras
    scaling = keras.mixed_precision.LossScaleOptimizer
    options = {"dynamic": False, "initial_scale": 1.0}
    for module in (keras.optimizers, keras.optimizers.legacy):
        for optimizer in (
            hvd.DistributedOptimizer(module.SGD(1.0)),
            hvd.DistributedOptimizer(scaling(module.SGD(1.0), **options)),
            scaling(hvd.DistributedOptimizer(module.SGD(1.0)), **options),
        ):
            parameters = [tf.Variable([0.0]) for _ in FACTORS]
            for number, parts in enumerate(STEPS):
                before = [float(each.numpy()[0]) for each in parameters]
                gradients = [
                    tf.constant([FACTORS[name]]) if name in parts[hvd.rank()] else None for name in FACTORS
                ]
                optimizer.apply_gradients(zip(gradients, parameters, strict=True))
                steps = [old - float(each.numpy()[0]) for old, each in zip(before, parameters, strict=True)]
                assert steps == [each or 0.0 for each in expected_of(number)], (optimizer, number)


def test_older_optimizers(run_legacy_keras_ranks):
    run_legacy_keras_ranks(2, older_optimizers, timeout=120)


def scaling_around_the_older_optimizers():
    """It shows nothing of what has no gradient here in the first step, and the variables are alike."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    keras = tf.keras
    optimizer = keras.mixed_precision.LossScaleOptimizer(
        hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(1.0)), dynamic=False, initial_scale=1.0
    )
    both = [tf.Variable([0.0], name=name) for name in ("first/kernel", "second/kernel")]
    used = both[hvd.rank()]
    gradients = [tf.ones(1) if variable is used else None for variable in both]
    with pytest.raises(hvd.TensorMismatchError, match=r"first/kernel.*second/kernel.*other way round"):
        optimizer.apply_gradients(zip(gradients, both, strict=True))
    assert [float(each.numpy()[0]) for each in both] == [0.0, 0.0]
    optimizer.apply_gradients((tf.ones(1), variable) for variable in both)
    assert [float(each.numpy()[0]) for each in both] == [-1.0, -1.0]


def test_scaling_around_the_older_optimizers(run_legacy_keras_ranks):
    run_legacy_keras_ranks(2, scaling_around_the_older_optimizers, timeout=120)


def passes_in_a_graph():
    """The sums of a rank that has none of a gradient in any pass: of the optimizer of tf.compat.v1, too."""
    hvd.init()
    with tf.Graph().as_default():
        first, second = (tf.compat.v1.get_variable(name, initializer=[0.0]) for name in "ab")
        loss = tf.reduce_sum(3.0 * first if hvd.rank() else 5.0 * second)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        step = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2).minimize(loss)
        once = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        alone = hvd.DistributedOptimizer(once, name="alone").minimize(loss)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for expected in ([[0], [0]], [[-3], [-5]], [[-3], [-5]], [[-6], [-10]]):
                session.run(step)
                assert np.array(session.run([first, second])).tolist() == expected
            session.run(alone)
            assert np.array(session.run([first, second])).tolist() == [[-7.5], [-12.5]]


def test_passes_in_a_graph(run_ranks):
    run_ranks(2, passes_in_a_graph, timeout=120)


def local_of_other_shapes():
    """Neither shape nor name nor number of elements of what is local is compared, but that it is local."""
    hvd.init()
    rank = hvd.rank()
    own, shared = tf.Variable(tf.ones((3 + rank, 2)), name=f"of_{rank}"), tf.Variable([1.0, 2.0])

    def step(register):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(own) + (1.0 + rank) * tf.reduce_sum(shared)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=False)
        if register:
            tape.register_local_source(own)
        return tape.gradient(loss, [own, shared])

    with pytest.raises(hvd.TensorMismatchError, match=r"variable 0 .*local"):
        step(register=rank == 0)
    for run in (step, tf.function(step)):
        mine, theirs = run(True)
        np.testing.assert_array_equal(mine, np.ones((3 + rank, 2)))
        np.testing.assert_array_equal(theirs, [1.5, 1.5])


def test_local_of_other_shapes(run_ranks):
    run_ranks(2, local_of_other_shapes, timeout=120)


def local_layers_of_other_shapes(adapter, package):
    """In a fit: what only a rank has stays its own, the callback of broadcasting leaves it alone, too."""
    hvd, keras = importlib.import_module(adapter), importlib.import_module(package)
    hvd.init()
    rank = hvd.rank()
    keras.utils.set_random_seed(rank)
    wide = keras.layers.Dense(
        2 + rank, kernel_initializer=keras.initializers.Constant(1.0 + rank), name="own"
    )
    inputs = keras.Input((3,))
    pooled = keras.layers.Lambda(lambda x: x[:, :2])(wide(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.Adam(0.0), local_layers=[wide])
    model.compile(optimizer, "mse")
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    x = np.random.default_rng(rank).normal(size=(8, 3)).astype("float32")
    model.fit(x, x.sum(1), batch_size=4, verbose=0, callbacks=[broadcast])
    np.testing.assert_array_equal(wide.get_weights()[0], np.full((3, 2 + rank), 1.0 + rank))
    return model.layers[-1].get_weights()[0].tolist()


@EVERY_KERAS
def test_local_layers_of_other_shapes(request, ranks, adapter, package):
    run = request.getfixturevalue(ranks)
    first, second = run(2, local_layers_of_other_shapes, [adapter, package], timeout=120)
    assert first == second
