"""Keras on torch: when gradients leave, and that programs which touch them before ``apply`` train as ever."""

import numpy as np
import pytest

STEPS, ROWS = 5, 4


def training(kind=None):
    """A model, data of all ranks by step, and the names of what has been started."""
    import keras

    import horovod.keras as hvd
    from horovod.common.training.gradient_reductions import GradientReductions

    hvd.init()
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,)), keras.layers.Dense(4, name="first"), keras.layers.Dense(1, name="last")]
    model = (kind or keras.Model)(inputs=layers[0], outputs=layers[2](layers[1](layers[0])))
    started, start = [], GradientReductions.start_described

    def noted(self, specs, gradients, nbytes, name):
        started.append(name)
        return start(self, specs, gradients, nbytes, name)

    GradientReductions.start_described = noted
    random = np.random.default_rng(5)
    inputs, targets = (random.normal(size=(STEPS, hvd.size(), ROWS, n)).astype("float32") for n in (3, 1))
    return keras, hvd, model, started, (inputs, targets)


def fit(model, data, ranks, optimizer):
    model.compile(optimizer, "mse")
    rows = [array[:, ranks].reshape(-1, array.shape[-1]) for array in data]
    model.fit(*rows, batch_size=ROWS * len(ranks), shuffle=False, verbose=0)
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


def rank_overlaps():
    """How many reductions have begun when the last gradient of each step is made; and the weights."""
    keras, hvd, model, started, data = training()
    counts = []
    first = model.get_layer("first").kernel.value
    first.register_post_accumulate_grad_hook(lambda _: counts.append(len(started)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    weights = fit(model, data, [hvd.rank()], optimizer)
    alone = keras.models.clone_model(model)
    keras.utils.set_random_seed(0)
    alone.set_weights(training()[2].get_weights())
    expected = fit(alone, data, list(range(hvd.size())), keras.optimizers.SGD(0.1, momentum=0.9))
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
    return counts, weights.tolist()


def test_gradients_leave_while_the_backward_pass_runs(run_torch_keras_ranks):
    (counts, mine), (_, theirs) = run_torch_keras_ranks(2, rank_overlaps, timeout=120)
    assert mine == theirs
    early = [count - 4 * step for step, count in enumerate(counts)]
    assert early[:2] == [0, 0]
    assert len(early) == STEPS and all(count >= 2 for count in early[2:])


def clipping(way):
    """A model whose steps touch gradients before ``apply``, on both kinds of optimizers alike."""
    import keras
    import torch

    class Clips(keras.Model):
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            loss = self.optimizer.scale_loss(self.compute_loss(y=y, y_pred=self(x)))
            loss.backward()
            if way == "two passes":
                self.compute_loss(y=y, y_pred=self(2 * x)).backward()
            variables = self.trainable_variables
            if way == "in place":
                torch.nn.utils.clip_grad_value_([v.value for v in variables], 0.1)
            gradients = [v.value.grad for v in variables]
            if way == "replaced":
                gradients = [gradient.clamp(-0.1, 0.1) for gradient in gradients]
            self.optimizer.apply(gradients, variables)
            return {}

    return Clips


def rank_touches_gradients(way):
    """The weights, and what the mean of the ranks' own changed gradients comes to."""
    keras, hvd, model, _, data = training(clipping(way))
    weights = fit(model, data, [hvd.rank()], hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    each = []
    before = training(clipping(way))[2].get_weights()
    for step in range(STEPS):
        gradients = []
        for rank in range(hvd.size()):
            one = training(clipping(way))[2]
            one.set_weights(before)
            fit(one, [array[step : step + 1] for array in data], [rank], keras.optimizers.SGD(0.1))
            gradients.append([new - old for new, old in zip(one.get_weights(), before, strict=True)])
        before = [old + sum(parts) / hvd.size() for old, *parts in zip(before, *gradients, strict=True)]
        each.append(before)
    expected = np.concatenate([weight.ravel() for weight in each[-1]])
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
    return weights.tolist()


@pytest.mark.parametrize("way", ["in place", "replaced", "two passes"])
def test_programs_that_touch_gradients(run_torch_keras_ranks, way):
    mine, theirs = run_torch_keras_ranks(2, rank_touches_gradients, [way], timeout=120)
    assert mine == theirs


def rank_changes_its_ways():
    """In its fourth step a program begins to clip, on one rank: an error that says what to do, on all."""
    keras, hvd, model, _, data = training(clipping("in place"))
    import torch

    calls = []
    clip = torch.nn.utils.clip_grad_value_

    def clip_later(parameters, bound):
        calls.append(bound)
        if len(calls) > 3 and hvd.rank() == 0:
            clip(parameters, 1e-4)

    torch.nn.utils.clip_grad_value_ = clip_later
    with pytest.raises(RuntimeError, match=r"'\d\.kernel'.* changed between.*on rank 0.*such as clipnorm"):
        fit(model, data, [hvd.rank()], hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    return len(calls)


def test_a_program_that_changes_its_ways_is_told(run_torch_keras_ranks):
    assert run_torch_keras_ranks(2, rank_changes_its_ways, timeout=120) == [4, 4]
