"""Optimizers of Keras 3 with everything they can do to gradients, and small models for them."""

from typing import Any

import keras
import numpy as np

from horovod._keras.backend import make_plan
from horovod._keras.optimizer import distribute
from horovod.common.process_sets import ProcessSet
from horovod.common.training.gradient_options import GradientSettings
from horovod.common.training.present_gradients import OF_THIS_RANK

RANKS = 3
INPUTS = 4
ROWS = 24


class Echo:
    """A backend on which all ranks have the same gradients; their sum is what comes back, or the average when
    that is asked for. Counts what it is asked for.
    """

    name = "echo"

    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[Any] = []

    def reduce_gradients(self, gradients, variables, plan):
        assert len(gradients) == len(variables)
        self.calls += 1
        self.seen.append([variable.path for variable in variables if variable is not OF_THIS_RANK])
        factor = 1 if plan.settings.op == 0 else RANKS
        return [None if gradient is None else self.scale(gradient, factor) for gradient in gradients]

    def scale(self, gradient, factor):
        return gradient * factor

    def divided(self, gradient, process_set):
        return self.scale(gradient, 1 / process_set.size())

    def size(self):
        return RANKS

    def is_eager(self):
        return False


class AllRanks(ProcessSet):
    """A set of so many ranks, in a job of one."""

    def __init__(self) -> None:
        super().__init__(list(range(RANKS)))

    def size(self) -> int:
        return RANKS

    def included(self) -> bool:
        return True


def echoing(optimizer, backend=None, name=None, local_layers=None, **options):
    """A distributed optimizer on ``Echo``; sums by default."""
    settings = GradientSettings(**{"op": 1, "process_set": AllRanks(), **options})
    plan = make_plan(backend or Echo(), optimizer, settings, name, local_layers)
    return distribute(optimizer, plan, keras)


def schedule():
    return keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.5)


def scaled(optimizer, **options):
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0, **options)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.02, momentum=0.5, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "schedule": lambda: keras.optimizers.RMSprop(schedule(), momentum=0.5),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=1.5),
    "global clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=3.0),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.5),
    "decay": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "average": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "accumulation": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, clipnorm=1.0),
    "fixed scale": lambda: keras.optimizers.SGD(0.1, loss_scale_factor=8.0, clipnorm=1.5),
    "loss scale": lambda: scaled(keras.optimizers.Adam(0.01, clipnorm=1.0), dynamic_growth_steps=2),
    "muon": lambda: keras.optimizers.Muon(0.01),
}
# Those of them that have state of different kinds.
DIFFERENT = ["sgd", "schedule", "average", "accumulation", "loss scale", "muon"]


def by_hand(optimizer):
    """The plain optimizer, given the sum of the ranks' gradients."""
    return given_times(optimizer, RANKS)


def given_times(optimizer, factor):
    """The plain optimizer, given the gradients times a factor."""
    apply = optimizer.apply

    def multiplied(grads, trainable_variables=None):
        return apply([gradient * factor for gradient in grads], trainable_variables)

    optimizer.apply = multiplied
    return optimizer


def net(seed=0, **options):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((INPUTS,)),
            layers.Dense(5, activation="tanh", name="first", **options),
            layers.Dense(1, name="last", **options),
        ]
    )


def data(seed=0):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(ROWS, INPUTS)).astype("float32")
    return inputs, random.normal(size=(ROWS, 1)).astype("float32")


def fit(model, optimizer=None, rows=(0, ROWS), batch_size=6, epochs=1, run_eagerly=True):
    """Compiles the model, when there is an optimizer, and trains it on rows of the data, in order."""
    if optimizer is not None:
        model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    inputs, targets = data()
    part = slice(*rows)
    model.fit(inputs[part], targets[part], batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0)
    return model


def numbers(variables):
    """The values of variables, one after the other."""
    return np.concatenate([np.asarray(keras.ops.convert_to_numpy(v), "float64").ravel() for v in variables])


def states(model):
    """Of the model and its optimizer."""
    return numbers([*model.weights, *model.optimizer.variables])
