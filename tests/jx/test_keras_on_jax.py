"""Keras 3 on JAX: `fit` with the step that Keras compiles, its callbacks, saving and loading."""

import importlib.util

import check_jax  # noqa: F401  # skips
import numpy as np
import pytest

if importlib.util.find_spec("keras") is None:
    pytest.skip("the package keras is not installed", allow_module_level=True)

ROWS, BATCH, EPOCHS = 32, 8, 3


def made(keras, seed: int):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((3,)), *layers])


def samples(rank: int, size: int):
    x = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
    return x[rank::size], x.sum(axis=1)[rank::size]


def ranks_fit(folder: str):
    import keras

    import horovod.keras as hvd

    hvd.init()
    assert keras.backend.backend() == "jax"
    model = made(keras, seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05))
    model.compile(optimizer, "mse", metrics=["mae"])
    assert model.jit_compile
    own = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _, logs: logs.update(rank=keras.ops.convert_to_tensor(float(hvd.rank())))
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        own,
        hvd.callbacks.MetricAverageCallback(),
    ]
    x, y = samples(hvd.rank(), hvd.size())
    batch = BATCH // hvd.size()
    history = model.fit(x, y, batch, EPOCHS, verbose=0, shuffle=False, callbacks=callbacks).history
    assert history["rank"] == [(hvd.size() - 1) / 2] * EPOCHS

    if hvd.rank() == 0:
        model.save(f"{folder}/model.keras")
    hvd.allreduce(1.0)  # the file is there
    loaded = hvd.load_model(f"{folder}/model.keras")
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.05, warmup_epochs=2)
    rates = loaded.fit(x, y, batch, EPOCHS, verbose=0, shuffle=False, callbacks=[warmup]).history["lr"]
    weights, later = (
        [np.asarray(v.value).tolist() for v in each.trainable_variables] for each in (model, loaded)
    )
    assert hvd.allreduce(2.0 * hvd.rank(), op=hvd.Sum) == hvd.size() * (hvd.size() - 1)
    return weights, history["loss"], rates, later


def test_fit(run_ranks, tmp_path) -> None:
    env = {"KERAS_BACKEND": "jax"}
    results = run_ranks(2, ranks_fit, [str(tmp_path)], env=env, timeout=100)
    assert results[0] == results[1]
    alone = run_ranks(1, ranks_fit, [str(tmp_path)], env=env, timeout=100)[0]
    for mine, expected in zip(results[0][0], alone[0], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-3, atol=1e-4)  # float32, of other sums
    np.testing.assert_allclose(results[0][1], alone[1], rtol=1e-3)
    assert results[0][2] == pytest.approx([0.0375, 0.05, 0.05])


def ranks_scale_the_loss(mixed: bool):
    import keras

    import horovod.keras as hvd

    hvd.init()
    plain = keras.optimizers.SGD(0.05)
    if mixed:
        keras.config.set_dtype_policy("mixed_float16")
    scaled = plain if mixed else keras.optimizers.LossScaleOptimizer(plain, initial_scale=1024.0)
    model = made(keras, seed=0)
    model.compile(hvd.DistributedOptimizer(scaled), "mse")
    x, y = samples(hvd.rank(), hvd.size())
    model.fit(x, y, BATCH // hvd.size(), EPOCHS, verbose=0, shuffle=False)

    trained = [variable.value for variable in model.trainable_variables]
    by_hand = hvd.DistributedOptimizer(scaled)  # once more; nobody scales the loss
    by_hand.build(model.trainable_variables)
    state = [variable.value for variable in by_hand.variables]
    gradients = [array * 0 + hvd.rank() for array in trained]
    moved, state = by_hand.stateless_apply(state, gradients, trained)
    steps = [np.unique(np.round((a - b) * 20, 3)).tolist() for a, b in zip(trained, moved, strict=True)]
    assert len(state) == len(by_hand.variables)
    return [np.asarray(array).tolist() for array in trained], steps


@pytest.mark.parametrize("mixed", [False, True], ids=["by hand", "by the policy"])
def test_gradients_of_a_scaled_loss(run_ranks, mixed: bool) -> None:
    env = {"KERAS_BACKEND": "jax"}
    results = run_ranks(2, ranks_scale_the_loss, [mixed], env=env, timeout=100)
    assert results[0] == results[1]
    alone, _ = run_ranks(1, ranks_scale_the_loss, [mixed], env=env, timeout=100)[0]
    rtol = 5e-2 if mixed else 2e-3
    for mine, expected in zip(results[0][0], alone, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=rtol / 10)
    scale = 1 if mixed else 1024
    assert results[0][1] == [[round(0.5 / scale, 3)]] * 4


def ranks_that_have_built_more():
    """One rank has made a variable before, so that Keras counts names differently."""
    import keras

    import horovod.keras as hvd

    hvd.init()
    variable = [keras.Variable([0.0]) for _ in range(2 - hvd.rank())][-1]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply([keras.ops.ones(1) * hvd.rank()], [variable])
    return np.asarray(variable.value).tolist()


def test_ranks_may_have_built_more(run_ranks) -> None:
    env = {"KERAS_BACKEND": "jax"}
    assert run_ranks(2, ranks_that_have_built_more, env=env, timeout=100) == [[-0.5]] * 2


def ranks_ask_for_what_jax_has_not() -> None:
    import keras

    import horovod.keras as hvd

    hvd.init()
    with pytest.raises(ValueError, match="gradient_accumulation_steps in place"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    with pytest.raises(RuntimeError, match="graphs of TensorFlow"):
        hvd.broadcast_global_variables(0)


def test_what_jax_has_not(run_ranks) -> None:
    run_ranks(1, ranks_ask_for_what_jax_has_not, env={"KERAS_BACKEND": "jax"}, timeout=100)


def elastic_training(keras, hvd):
    """Returns a model, its state with a number of batches, and this rank's samples."""
    hvd.init()
    model = made(keras, seed=1)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
    return model, hvd.elastic.KerasState(model, batch=0), *samples(hvd.rank(), hvd.size())


def ranks_go_back_within_a_fit():
    """While Keras trains on JAX, the variables of the model have no values: a commit takes them back."""
    import keras

    import horovod.keras as hvd

    model, state, x, y = elastic_training(keras, hvd)
    failed = []

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if state.batch == 2 and not failed:
                failed.append(True)
                raise hvd.HorovodInternalError("made up")

    # The second batch fails after it was made and before it is committed.
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        Fail(),
        hvd.elastic.CommitStateCallback(state),
    ]

    @hvd.elastic.run
    def work(state):
        left = slice(state.batch * 4, None)
        model.fit(x[left], y[left], 4, verbose=0, shuffle=False, callbacks=callbacks)
        return int(model.optimizer.iterations), [np.asarray(v.value).tolist() for v in model.weights]

    return work(state)


def test_what_was_committed_within_a_fit_comes_back(run_ranks) -> None:
    first, second = run_ranks(2, ranks_go_back_within_a_fit, env={"KERAS_BACKEND": "jax"}, timeout=100)
    assert first == second
    assert first[0] == ROWS // 2 // 4  # each batch was used once


def ranks_fail_in_an_evaluation():
    """Keras then keeps what it has evaluated, which is older than what comes back."""
    import keras

    import horovod.keras as hvd

    model, state, x, y = elastic_training(keras, hvd)
    found = []

    class Fail(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            if len(found) == 2:
                raise hvd.HorovodInternalError("made up")

    @hvd.elastic.run
    def work(state):
        found.append([np.asarray(v.value).tolist() for v in model.weights])
        while state.batch < 2:
            model.fit(x[:4], y[:4], 4, verbose=0)
            state.batch += 1
            if state.batch == 1:
                state.commit()
                found.append([np.asarray(v.value).tolist() for v in model.weights])
        model.evaluate(x, y, 4, verbose=0, callbacks=[Fail()])

    work(state)
    return found


def test_what_an_evaluation_has_kept_does_not_come_back(run_ranks) -> None:
    first, second = run_ranks(2, ranks_fail_in_an_evaluation, env={"KERAS_BACKEND": "jax"}, timeout=100)
    assert first == second
    _, committed, restored = first
    assert restored == committed
