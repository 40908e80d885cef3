"""``horovod.tensorflow.keras`` in programs of TensorFlow 1, whose graphs a session runs, and in new
processes.
"""

import numpy as np
import pytest


def rank_trains():
    """Every function does what it says, or raises."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank, keras = hvd.rank(), tf.keras

    def equal_everywhere(model):
        every = hvd.allgather(np.concatenate([w.ravel() for w in model.get_weights()])[np.newaxis])
        return bool((every == every[0]).all())

    def compiled(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1, momentum=0.5)), "mse")
        return model

    assert hvd.allreduce(np.float32(rank)) == 0.5
    assert hvd.broadcast(np.float32(rank), 1) == 1
    assert hvd.reducescatter(np.arange(2.0), op=hvd.Sum) == [2.0 * rank]
    hvd.barrier()

    first = compiled(rank)
    assert not equal_everywhere(first)
    hvd.broadcast_variables(first.variables, root_rank=0)
    assert equal_everywhere(first)
    second = compiled(10 + rank)
    hvd.broadcast_global_variables(0)
    assert equal_everywhere(second)

    model = compiled(20 + rank)
    rates = []
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(multiplier=lambda epoch: 0.5**epoch),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: rates.append(logs["lr"])),
    ]
    x = np.random.default_rng(rank).random((16, 2)).astype("float32")
    model.fit(x, x.sum(1), batch_size=8, epochs=3, verbose=0, callbacks=callbacks)
    assert equal_everywhere(model)
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.025], rtol=1e-6)
    warm = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=1)
    model.fit(x, x.sum(1), batch_size=8, verbose=0, callbacks=[warm])
    np.testing.assert_allclose(keras.backend.get_value(model.optimizer.lr), 0.4, rtol=1e-6)
    for newer in (keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)):
        with pytest.raises(ValueError, match=r"optimizers\.legacy\."):
            hvd.DistributedOptimizer(newer)
    with pytest.raises(ValueError, match="TensorFlowState"):
        hvd.elastic.KerasState(model)
    assert hvd.join() in (0, 1)


def test_training_in_sessions(run_legacy_keras_ranks):
    run_legacy_keras_ranks(2, rank_trains, timeout=240)


def rank_keeps_a_model(loaded, path):
    """In a process that has not named the layer: of a Keras of its own, too."""
    import keras
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    if not loaded:
        import horovod.tensorflow as hvd_tensorflow

        parts = [keras.Input((4,)), hvd_tensorflow.SyncBatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential(parts)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
        model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
        model.save(path)
    else:
        for load in (hvd.load_model, tf.keras.models.load_model):
            assert type(load(path).layers[0]).__name__ == "SyncBatchNormalization"


def test_models_with_synchronous_normalisation_are_loaded(run_ranks, tmp_path):
    path = str(tmp_path / "model.keras")
    for loaded in (False, True):
        run_ranks(1, rank_keeps_a_model, [loaded, path], timeout=240)
