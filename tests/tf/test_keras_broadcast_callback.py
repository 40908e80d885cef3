"""What BroadcastGlobalVariablesCallback hands to the backend, and when, in real runs of ``model.fit``."""

import numpy as np
import pytest
from keras_made_up_ranks import GENERATIONS, MadeUpRanks, generation

INPUTS = np.random.default_rng(5).normal(size=(12, 3)).astype("float32")
EVERY_GENERATION = pytest.mark.parametrize("which", GENERATIONS)


def layered(of, built=True):
    """Weights that are trained and some that are not, a random generator and metrics."""
    layers = of.keras.layers
    parts = [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)]
    return of.keras.Sequential(([layers.InputLayer((3,))] if built else []) + parts)


def subclassed(of):
    """A model whose variables are made by its first use."""

    class Model(of.keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = of.keras.layers.Dense(4), of.keras.layers.Dense(1)

        def call(self, inputs):
            return self.out(self.hidden(inputs))

    return Model()


def fit(of, model, callbacks, optimizer=None, **options):
    """Two batches an epoch unless ``options`` say otherwise."""
    model.compile(optimizer or of.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"])
    arguments = {"batch_size": 6, "verbose": 0, **options}
    model.fit(INPUTS, INPUTS[:, :1], callbacks=callbacks, **arguments)


def same(found, wanted):
    """Whether two lists hold the same objects, in any order and none twice."""
    return sorted(map(id, found)) == sorted(map(id, wanted))


def optimizer_state(model):
    optimizer = model.optimizer
    return list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)


@EVERY_GENERATION
def test_all_weights_and_all_of_the_optimizer_after_the_first_batch(which):
    backend = MadeUpRanks(2)
    of = generation(which, backend)
    at = []
    watch = of.keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: at.append(len(backend.broadcasts())),
        on_batch_end=lambda batch, logs: at.append(len(backend.broadcasts())),
    )
    model = layered(of)
    fit(of, model, [of.Broadcast(3), watch], epochs=2)
    at_start, after_a_batch = backend.broadcasts()
    assert at == [1, 1, 2, 2, 2]
    assert same(at_start, model.weights)
    assert len(model.weights) == 8
    rate = model.optimizer.learning_rate
    state = {id(variable): variable for variable in [*optimizer_state(model), rate]}
    assert same(after_a_batch, [*model.weights, *state.values()])
    assert len(state) == 2 + len(model.trainable_variables)  # count and rate, velocities
    assert [event[2] for event in backend.events if event[0] == "broadcast"] == [3, 3]


@EVERY_GENERATION
def test_in_a_loop_of_the_program_it_is_done_after_the_first_batch(which):
    backend = MadeUpRanks(2)
    of = generation(which, backend)
    model = layered(of)
    model.compile(of.optimizers.SGD(0.01, momentum=0.9), "mse")
    callback = of.Broadcast(0)
    callback.set_model(model)
    for batch in range(3):
        model.train_on_batch(INPUTS, INPUTS[:, :1])
        callback.on_batch_end(batch)
    (done,) = backend.broadcasts()
    assert len(done) == len(model.weights) + 2 + len(model.trainable_variables)


def test_models_with_several_optimizers():
    backend = MadeUpRanks(2)
    of = generation("tf_keras", backend)
    model = layered(of)
    optimizers = [of.optimizers.SGD(0.1, momentum=0.9), of.optimizers.Adam(0.1)]
    model.compile(optimizers, "mse")
    for optimizer in optimizers:
        optimizer.build(model.trainable_variables)
    callback, schedule = of.Broadcast(0), of.Schedule(multiplier=0.5)
    callback.set_model(model)
    schedule.set_model(model)
    callback.on_train_begin()
    (done,) = backend.broadcasts()
    assert len(done) == len(model.weights) + sum(len(each.variables) + 1 for each in optimizers)
    with pytest.raises(ValueError, match="2 optimizers"):
        schedule.on_train_begin()


@EVERY_GENERATION
def test_a_subclassed_model_is_broadcast_once_its_variables_exist(which):
    backend = MadeUpRanks(2)
    of = generation(which, backend)
    model = subclassed(of)
    fit(of, model, [of.Broadcast(0)])
    (only,) = backend.broadcasts()
    assert {id(variable) for variable in model.weights} <= {id(variable) for variable in only}
    assert len(only) == 4 + 2 + 4


@pytest.mark.parametrize("built_elsewhere", [True, False])
def test_ranks_broadcast_at_the_start_only_what_all_have_built(built_elsewhere):
    backend = MadeUpRanks(5, others=lambda name, value: [float(built_elsewhere)] + [1.0] * 3)
    of = generation("keras", backend)
    fit(of, layered(of), [of.Broadcast(0)])
    assert len(backend.broadcasts()) == 1 + built_elsewhere


def test_a_built_optimizer_is_broadcast_at_the_start_too():
    backend = MadeUpRanks(2)
    of = generation("keras", backend)
    model, optimizer = layered(of), of.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    fit(of, model, [of.Broadcast(0)], optimizer)
    assert same(backend.broadcasts()[0], [*model.weights, *optimizer.variables])


@EVERY_GENERATION
@pytest.mark.parametrize("registered_later", [True, False])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_local_variables_and_what_is_kept_for_them_stay(which, registered_later, kind):
    backend = MadeUpRanks(2)
    of = generation(which, backend)
    model = layered(of)
    local = model.layers[-1].trainable_variables
    broadcast = of.Broadcast(0, local_variables=None if registered_later else local)
    if registered_later:
        for variable in local:
            broadcast.register_local_var(variable)
    optimizer = of.optimizers.SGD(0.01, momentum=0.9) if kind == "SGD" else of.optimizers.Adam(0.01)
    fit(of, model, [broadcast], optimizer)
    at_start, after_a_batch = backend.broadcasts()
    assert same(at_start, [weight for weight in model.weights if all(weight is not own for own in local)])
    shapes = [tuple(variable.shape) for variable in after_a_batch]
    slots = {"SGD": 1, "Adam": 2}[kind]
    assert shapes.count((4, 1)) == shapes.count((1,)) == 0
    assert shapes.count((3, 4)) == 1 + slots
    assert shapes.count(()) == 2


def test_gradients_that_wait_stay():
    backend = MadeUpRanks(2)
    of = generation("keras", backend)
    optimizer = of.optimizers.SGD(0.01, momentum=0.9, gradient_accumulation_steps=4)
    fit(of, layered(of), [of.Broadcast(0)], optimizer)
    given = {id(variable) for variable in backend.broadcasts()[-1]}
    waiting = optimizer._accumulated_gradients
    assert len(waiting) == 6
    assert not given & {id(variable) for variable in waiting}
    assert {id(variable) for variable in optimizer.momentums} <= given


@EVERY_GENERATION
def test_it_is_done_before_the_validation_of_an_epoch_of_one_batch(which):
    backend = MadeUpRanks(2)
    of = generation(which, backend)
    seen = []
    watch = of.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(len(backend.broadcasts()))
    )
    tested = []
    watch.on_test_begin = lambda logs=None: tested.append(len(backend.broadcasts()))
    callbacks = [of.Broadcast(0), watch]
    fit(of, layered(of), callbacks, batch_size=12, epochs=2, validation_data=(INPUTS, INPUTS[:, :1]))
    assert (tested, seen) == ([2, 2], [2, 2])


def test_it_is_done_at_the_end_of_an_epoch_of_one_batch():
    backend = MadeUpRanks(2)
    of = generation("keras", backend)
    fit(of, layered(of), [of.Broadcast(0)], batch_size=12)
    assert len(backend.broadcasts()) == 2


def test_every_training_is_broadcast():
    backend = MadeUpRanks(2)
    of = generation("keras", backend)
    broadcast, model = of.Broadcast(0), layered(of)
    for expected in (2, 4):
        fit(of, model, [broadcast])
        assert len(backend.broadcasts()) == expected


def test_batches_need_not_wait_for_their_logs():
    """Keras 3 runs callbacks in the background if none of them has a hook at the end of a batch, and Keras 2
    leaves the logs of a batch on the device if none of its callbacks wants numbers.
    """
    of = generation("keras", MadeUpRanks())
    for kind in (of.Broadcast, of.Average, of.Warmup, of.Schedule):
        for hook in ("on_batch_end", "on_train_batch_end", "on_test_batch_end"):
            assert getattr(kind, hook)._is_default, (kind, hook)
    of = generation("tf_keras", MadeUpRanks())
    ours = [of.Broadcast(0), of.Average(), of.Warmup(), of.Schedule()]
    assert of.keras.callbacks.CallbackList(ours)._batch_hooks_support_tf_logs
