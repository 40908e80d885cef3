"""Saved stages, loaded in a process that has not made them."""

import importlib
import json
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", ["torch", "lightning"])
def test_in_a_new_process(session: Any, tmp_path: Path, framework: str) -> None:
    if framework == "torch":
        cases = [saved_torch(session, TorchModel, torch_model(torch.nn.Module), tmp_path / "saved")]
    else:
        lightning = pytest.importorskip("lightning")
        kind = importlib.import_module("horovod.spark.lightning").TorchModel
        cases = [saved_torch(session, kind, torch_model(lightning.LightningModule), tmp_path / "saved")]
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    run_program("loading_program.py", tmp_path)
