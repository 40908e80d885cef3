"""Callbacks of any generation of Keras over a backend whose other ranks are made up."""

import importlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from horovod._keras.adapter import KerasAdapter

GENERATIONS = ["keras", "tf_keras", "tf_keras legacy"]


class MadeUpRanks:
    """This is rank ``own`` of ``ranks``; ``others`` is asked what the others contribute to a mean."""

    name = "made up"

    def __init__(self, ranks: int = 1, own: int = 0, others: Any = None) -> None:
        self._ranks, self._own = ranks, own
        self._others = others or (lambda name, value: [value] * (ranks - 1))
        self.events: list[Any] = []

    def rank(self) -> int:
        return self._own

    def size(self) -> int:
        return self._ranks

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        self.events.append(("mean", list(values)))
        return {name: float(np.mean([v, *self._others(name, v)])) for name, v in sorted(values.items())}

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int) -> None:
        self.events.append(("broadcast", list(variables), root_rank))

    def result(self, tensor: Any) -> Any:
        return tensor

    def give_back(self, model: Any) -> None:
        pass

    def broadcasts(self) -> list[list[Any]]:
        """The variables of each broadcast."""
        return [event[1] for event in self.events if event[0] == "broadcast"]


def generation(name: str, backend: MadeUpRanks) -> SimpleNamespace:
    """``keras``, ``optimizers`` and the callbacks, computing on ``backend``."""
    package, _, legacy = name.partition(" ")
    keras = importlib.import_module(package)
    adapter = KerasAdapter(keras, backend, "made_up")
    return SimpleNamespace(
        keras=keras,
        optimizers=keras.optimizers.legacy if legacy else keras.optimizers,
        Broadcast=adapter.BroadcastGlobalVariablesCallback,
        Average=adapter.MetricAverageCallback,
        Schedule=adapter.LearningRateScheduleCallback,
        Warmup=adapter.LearningRateWarmupCallback,
        BestModel=adapter.BestModelCheckpoint,
    )


def recorder(keras: Any) -> Any:
    """A callback with ``rates``, the learning rate of each batch."""

    class Recorder(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.rates: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            optimizer = self.model.optimizer
            rate = getattr(optimizer, "inner_optimizer", optimizer).learning_rate
            self.rates.append(float(rate.numpy() if hasattr(rate, "numpy") else rate))

    return Recorder()
