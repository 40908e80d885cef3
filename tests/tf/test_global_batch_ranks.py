"""Keras models that are trained with a constant global batch by different numbers of ranks."""

import numpy as np
import pytest


def rank_trains(batch_size: int) -> list[list[float]]:
    """The loss over all samples after each step, and the weights at the end."""
    import keras

    import horovod.tensorflow.keras as hvd

    hvd.init()
    dice = np.random.default_rng(5)
    x, y = dice.normal(size=(50, 4)).astype("float32"), dice.normal(size=(50, 1)).astype("float32")
    model = keras.Sequential(
        [keras.layers.InputLayer((4,)), keras.layers.Dense(1, "linear", kernel_initializer="ones")]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), "mse")
    batches = hvd.elastic.ElasticBatches(len(x), batch_size, seed=2)
    losses = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        for part in batches.parts():
            weights = np.full(len(part.indices), part.weight, "float32")
            model.train_on_batch(x[part.indices], y[part.indices], sample_weight=weights)
            losses.append(float(np.mean((model(x).numpy() - y) ** 2)))
    return [losses, *(weight.ravel().tolist() for weight in model.get_weights())]


@pytest.mark.parametrize("batch_size", [12, 16])
def test_ranks_make_the_steps_of_one(run_ranks, batch_size):
    alone = run_ranks(1, rank_trains, [batch_size])[0]
    for ranks in (2, 3):
        for told in run_ranks(ranks, rank_trains, [batch_size]):
            for mine, expected in zip(told, alone, strict=True):
                assert np.allclose(mine, expected, rtol=1e-4, atol=1e-5)
