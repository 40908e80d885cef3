"""Elastic training of Keras in one process: what the callbacks note and commit, and what comes back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import horovod.keras
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.elastic import rate
from horovod.elastic.checkpoint.durability import kept
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.options import Options

X, Y = np.ones((12, 3), "float32"), np.ones((12, 2), "float32")


@pytest.fixture(autouse=True)
def alone():
    hvd.init()


def model_of(kind="adam"):
    keras.utils.set_random_seed(3)
    parts = [keras.layers.Dense(2), keras.layers.Dropout(0.3), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.layers.InputLayer((3,)), *parts])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.get(kind)), "mse", metrics=["mae"])
    return model


def values(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [np.array(variable.numpy()) for variable in variables]


def same(first, second):
    return all(map(np.array_equal, first, second)) and len(first) == len(second)


def fit(model, callbacks, **options):
    return model.fit(X, Y, batch_size=3, verbose=0, callbacks=callbacks, **options)


@pytest.mark.parametrize("package", [hvd, horovod.keras])
@pytest.mark.parametrize("kind", ["adam", "sgd", "adagrad"])
def test_model_and_optimizer_come_back(package, kind):
    model = model_of(kind)
    state = package.elastic.KerasState(model, epoch=0)
    assert state.optimizer is model.optimizer
    saved = values(model)
    for commits in range(2):
        if commits:
            fit(model, [])
            model.optimizer.learning_rate = 0.5
            state.epoch = 1
            state.commit()
            saved = values(model)
        for _ in range(2):
            fit(model, [])
            model.optimizer.learning_rate = 0.25
            state.epoch = 9
            assert not same(values(model)[: len(saved)], saved)
            state.restore()
            # The metrics have been made by the first fit.
            now = values(model)
            assert same(now, saved) or len(now) > len(saved)
            assert state.epoch == commits
    assert same(values(model), saved)
    state.sync()
    assert same(values(model), saved)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("relative", [False, True])
def test_callbacks(order, relative):
    model = model_of()
    state = hvd.elastic.KerasState(model, batch=0, epoch=2)
    seen = []
    commit = state.commit

    def watched():
        seen.append((state.epoch, state.batch))
        commit()

    state.commit = watched
    own = [
        hvd.elastic.CommitStateCallback(state, batches_per_commit=3),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    options = {"epochs": 2} if relative else {"initial_epoch": state.epoch, "epochs": 4}
    fit(model, [own[index] for index in order], **options)
    assert seen == [(2, 3), (3, 0), (3, 3), (4, 0)]  # four batches an epoch
    assert (state.epoch, state.batch) == (4, 0)


def test_an_epoch_that_goes_on_counts_from_where_it_was():
    model = model_of()
    state = hvd.elastic.KerasState(model, batch=2, epoch=0)
    batches = []

    class Watch(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            batches.append(state.batch)

    fit(model, [hvd.elastic.UpdateBatchStateCallback(state), Watch()], epochs=2, steps_per_epoch=2)
    assert batches == [3, 4, 1, 2]
    assert state.batch == 0


def test_a_number_of_batches_is_positive():
    with pytest.raises(ValueError, match="at least 1"):
        hvd.elastic.CommitStateCallback(None, 0)


def test_variables_of_tensorflow():
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64), tf.Variable([True])]
    state = hvd_tf.elastic.TensorFlowState(variables, batch=0)
    assert state.variables == variables
    variables[0].assign([5.0, 6.0])
    state.batch = 1
    state.commit()
    variables[0].assign_add([1.0, 1.0])
    variables[1].assign(9)
    variables[2].assign([False])
    state.batch = 2
    state.restore()
    assert variables[0].numpy().tolist() == [5.0, 6.0]
    assert (variables[1].numpy(), variables[2].numpy().tolist(), state.batch) == (3, [True], 1)
    state.sync()


def test_variables_of_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("weights", initializer=[1.0, 2.0])
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd_tf.elastic.TensorFlowState(session=session, batch=0)
        session.run(variable.assign([5.0, 6.0]))
        state.commit()
        session.run(variable.assign([7.0, 8.0]))
        state.restore()
        assert session.run(variable).tolist() == [5.0, 6.0]
        state.sync()
        assert session.run(variable).tolist() == [5.0, 6.0]


def test_errors_of_others_are_left_alone():
    with pytest.raises(tf.errors.UnknownError), hvd_tf.elastic.internal_errors():
        raise tf.errors.UnknownError(None, None, "the disk says HorovodAllreduce")
    with pytest.raises(HorovodInternalError, match="rank 1"), hvd_tf.elastic.internal_errors():
        raise tf.errors.UnknownError(None, None, "{{node a}} HorovodAllgather: rank 1 is gone [Op:x]")


def test_the_indices_of_a_dataset_are_those_that_are_left():
    indices = hvd_tf.elastic.ElasticIndices(10, seed=2)
    state = hvd_tf.elastic.TensorFlowState([], indices=indices)
    batches = hvd_tf.elastic.indices_dataset(indices).map(lambda index: index * 10).batch(4)
    seen = []
    for number, batch in enumerate(batches):
        seen += batch.numpy().tolist()
        indices.record_batch(number, 4)
        if number == 0:
            state.commit()
            break
    state.on_reset()
    assert indices.processed_num == 4
    for number, batch in enumerate(batches):
        seen += batch.numpy().tolist()
        indices.record_batch(number, 4)
    assert sorted(seen) == [10 * index for index in range(10)]


def test_a_model_goes_on_from_disk(tmp_path):
    def held(model):
        weights = [*model.weights, *model.optimizer.variables]
        return [np.array(variable.numpy()) for variable in weights]

    options = Options(str(tmp_path / "kept"), commits=1)
    model = model_of()
    state = hvd.elastic.KerasState(model, epoch=0)
    with kept(state, options):
        state.sync()
        for state.epoch in range(1, 4):  # a commit does not disturb what is being written
            fit(model, [])
            state.commit()
    saved = held(model)

    model = model_of()
    state = hvd.elastic.KerasState(model, epoch=0)
    assert not same(held(model), saved)
    with kept(state, options):
        state.sync()
        assert state.epoch == 3 and same(held(model), saved)

    other = keras.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(5)])
    other.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), "mse")
    state = hvd.elastic.KerasState(other, epoch=0)
    with pytest.raises(CheckpointError, match="shapes"), kept(state, options):
        state.sync()


@pytest.mark.parametrize("package", [hvd, horovod.keras, hvd_tf])
def test_the_program_names_the_folder(package, tmp_path):
    @package.elastic.run(checkpoint_dir=tmp_path, every_commits=2)
    def train(state):
        while state.step < limit:
            state.step += 1
            state.commit()
        return state.step

    make = getattr(package.elastic, "KerasState", None) or package.elastic.TensorFlowKerasState
    for limit in (3, 7):
        state = make(model_of(), step=0)
        assert train(state) == limit
    assert train(make(model_of(), step=0)) == 7
    (tmp_path / "file").touch()
    refused = package.elastic.run(checkpoint_dir=tmp_path / "file")(train)
    with pytest.raises(package.elastic.CheckpointError, match="No checkpoints can be written"):
        refused(make(model_of(), step=0))


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_has_the_scaled_rate_and_a_commit_the_plain_one(monkeypatch, first):
    """Wherever the callback is among the others."""
    monkeypatch.setattr(rate, "_size", lambda: 2)
    model = model_of("sgd")
    model.optimizer.learning_rate = 0.25
    scale = hvd.elastic.RateScale(ranks=1, warmup_steps=0)
    state = hvd.elastic.KerasState(model, scale=scale, batch=0, epoch=0)
    during, committed = [], []
    commit = state.commit

    def watched():
        committed.append(float(model.optimizer.learning_rate.numpy()))
        commit()

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            during.append(float(model.optimizer.learning_rate.numpy()))

    state.commit = watched
    parts = [hvd.elastic.LearningRateScaleCallback(state, scale), Watch()]
    committing = [hvd.elastic.CommitStateCallback(state)]
    fit(model, parts + committing if first else committing + parts)
    assert during == [0.5] * 4
    assert committed == [0.25] * 5
    assert float(model.optimizer.learning_rate.numpy()) == 0.25


def test_a_schedule_of_keras_is_refused():
    model = model_of()
    rates = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(keras.optimizers.SGD(rates), "mse")
    scale = hvd.elastic.RateScale()
    state = hvd.elastic.KerasState(model, scale=scale)
    with pytest.raises(ValueError, match="LearningRateSchedule"):
        fit(model, [hvd.elastic.LearningRateScaleCallback(state, scale)])
