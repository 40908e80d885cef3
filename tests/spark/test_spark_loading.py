"""Saved stages, loaded in a process that has not made them."""

import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from executors import run_program

from horovod.spark.common.arrow import Column
from horovod.spark.torch import TorchModel

FEATURES = np.array([[n / 4, 1 - n / 4, n % 3 / 2] for n in range(8)], np.float32)
COLUMNS = {"x": Column("x", "float32", (3,), "array"), "y": Column("y", "float64", (), "scalar")}
DESCRIBED = {"columns": COLUMNS, "shapes": [[1]]}
VALUES = {"feature_columns": ["x"], "label_columns": ["y"], "_metadata": DESCRIBED}


def torch_model(base: type) -> Any:
    """Of a class that no module has."""

    class Scaled(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: Any) -> Any:
            return 2 * self.layer(x)

    return Scaled()


def saved_torch(session: Any, kind: type, model: Any, path: Path) -> dict[str, Any]:
    kind(model=model, **VALUES).save(str(path))
    wanted = model(torch.from_numpy(FEATURES)).detach()[:, 0].tolist()
    return {"module": kind.__module__, "kind": kind.__name__, "path": str(path), "predictions": wanted}


def saved_keras(session: Any, folder: Path) -> list[dict[str, Any]]:
    """A model, and an estimator that is to learn it, with a layer and a loss that no module has."""
    keras = importlib.import_module("keras")
    kinds = importlib.import_module("horovod.spark.keras")

    class Doubled(keras.layers.Layer):  # type: ignore[misc,name-defined]
        def call(self, inputs: Any) -> Any:
            return 2 * inputs

    layers = [keras.layers.Input((3,)), keras.layers.Dense(1), Doubled()]
    values = {"model": keras.Sequential(layers), "custom_objects": {"Doubled": Doubled}}
    kinds.KerasModel(**values, **VALUES).save(str(folder / "model"))
    values |= {"optimizer": keras.optimizers.SGD(0.0), "loss": lambda wanted, found: (wanted - found) ** 2}
    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    kinds.KerasEstimator(**values, **columns, verbose=0).save(str(folder / "estimator"))
    wanted = values["model"].predict(FEATURES, verbose=0)[:, 0].tolist()
    return [
        {"module": kinds.__name__, "kind": kind, "path": str(folder / name), "predictions": wanted}
        for kind, name in (("KerasModel", "model"), ("KerasEstimator", "estimator"))
    ]


@pytest.mark.timeout(300)
def test_in_a_new_process(session: Any, tmp_path: Path) -> None:
    """One for all: it is Spark and TensorFlow that take their time to start."""
    cases = [saved_torch(session, TorchModel, torch_model(torch.nn.Module), tmp_path / "torch")]
    if importlib.util.find_spec("lightning"):
        base = importlib.import_module("lightning").LightningModule
        kind = importlib.import_module("horovod.spark.lightning").TorchModel
        cases.append(saved_torch(session, kind, torch_model(base), tmp_path / "lightning"))
    if importlib.util.find_spec("tensorflow") and os.environ.get("KERAS_BACKEND") in (None, "tensorflow"):
        cases += saved_keras(session, tmp_path)
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    run_program("loading_program.py", tmp_path)
