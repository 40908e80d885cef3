"""Mistakes in the use of an estimator are told on the driver, before data are written or any rank starts."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import cloudpickle
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("torch")

import estimator_cases as cases
import torch

from horovod.spark import runner
from horovod.spark.common import dataset
from horovod.spark.common.arrow import Column, to_numpy
from horovod.spark.common.store import Store
from horovod.spark.common.training import _on_arrays
from horovod.spark.torch import TorchEstimator, TorchModel
from horovod.spark.torch import estimator as torch_estimator
from horovod.spark.torch.training import Losses, tensors


def estimator(folder: Path, **values: Any) -> TorchEstimator:
    model = torch.nn.Linear(3, 1)
    given: dict[str, Any] = {
        "store": Store.create(str(folder / "store")),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss": torch.nn.functional.mse_loss,
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "verbose": 0,
    }
    return TorchEstimator(**{**given, **values})


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        *(({name: 0}, ValueError, f"{name}=0: it must be at least 1") for name in ("epochs", "num_proc")),
        ({"batch_size": -3}, ValueError, "batch_size=-3"),
        ({"store": "/a/path"}, TypeError, r"store='/a/path' is no store: Store.create\(path\)"),
        (
            {"input_shapes": [-1, 3]},
            ValueError,
            r"input_shapes=\[-1, 3\] are not one for each of feature_cols",
        ),
        ({"label_shapes": [[1], [1]]}, ValueError, "label_shapes=.* are not one for each of label_cols"),
        ({"loss_weights": [1.0, 1.0]}, ValueError, "loss_weights=.* are not one for each of label_cols"),
        ({"metrics": [threading.Lock().acquire]}, TypeError, "the param 'metrics' cannot be pickled"),
        ({"optimizer": torch.optim.SGD}, TypeError, "optimizer=.* is no optimizer"),
        ({"model": torch.nn.Linear}, TypeError, "model=.* is no torch.nn.Module"),
        ({"loss": "mse"}, TypeError, "loss='mse' cannot be called"),
        ({"metrics": ["mae"]}, TypeError, "metrics='mae' cannot be called"),
        ({"metrics": [[torch.nn.functional.l1_loss, "mae"]]}, TypeError, "metrics='mae' cannot be called"),
    ],
)
def test_params(tmp_path: Path, values: dict[str, Any], kind: type[Exception], text: str) -> None:
    """Nobody has looked at the DataFrame yet, which is none."""
    with pytest.raises(kind, match=text):
        estimator(tmp_path, **values).fit(None)
    assert not (tmp_path / "store").exists()


def test_data_of_validation_that_are_not_there(tmp_path: Path) -> None:
    one = estimator(tmp_path, backend=cases.InProcess(), validation=0.1)
    path = Path(one.getStore().get_train_data_path())
    path.mkdir(parents=True)
    pa.parquet.write_table(pa.table({"x": [[1.0, 2.0, 3.0]], "y": [1.0]}), path / "part.parquet")
    with pytest.raises(ValueError, match=r"validation=0.1 is set, but there are no data at .*val_data"):
        one.fit_on_parquet()


def test_no_rows_to_validate_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = estimator(tmp_path, backend=cases.InProcess(), validation="late")
    found = dataset.Dataset("nowhere", "nowhere", {}, 4, 0)
    monkeypatch.setattr(dataset, "write", lambda *args, **kwargs: found)
    monkeypatch.setattr(TorchEstimator, "_fit_on", lambda self, *args: "trained")
    with pytest.warns(UserWarning, match="validation='late' leaves no rows to validate with") as caught:
        assert one.fit(SimpleNamespace()) == "trained"
    assert caught[0].filename == __file__


def test_columns_of_transform() -> None:
    columns = {name: Column(name, "float64", (), "scalar") for name in "xy"}
    model = TorchModel(
        model=torch.nn.Linear(1, 1),
        feature_columns=["x"],
        label_columns=["y"],
        _metadata={"columns": columns, "shapes": [[1]]},
    )
    with pytest.raises(ValueError, match="the DataFrame has no column 'x', but a, b"):
        model.transform(SimpleNamespace(columns=["a", "b"]))
    with pytest.raises(ValueError, match=r"outputCols=\['p', 'q'\] are not one for each label of \['y'\]"):
        model.setOutputCols(["p", "q"]).transform(SimpleNamespace(columns=["x"]))


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (lambda rows: None, TypeError, "transformation_fn returned a NoneType, and no pandas.DataFrame"),
        (lambda rows: rows[rows.x < 0], ValueError, "transformation_fn left no row of a batch"),
    ],
)
def test_transformations(function: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        _on_arrays(function, None)({"x": np.arange(3.0)})


@pytest.mark.parametrize(
    ("shape", "values", "text"),
    [
        ((3,), pa.array([1.0]), "type double, and is to be a dense_vector of 3 numbers"),
        ((3,), pa.array(["a"]), "type string, and is to be a dense_vector of 3 numbers"),
        ((), pa.array([[1.0]]), "type list<item: double>, and is to be a scalar"),
    ],
)
def test_rows_of_another_type(shape: Any, values: Any, text: str) -> None:
    column = Column("x", "float64", shape, "dense_vector" if shape else "scalar")
    with pytest.raises(TypeError, match=f"column 'x' has values of the {text}"):
        to_numpy(values, column)


def test_a_shape_of_other_rows() -> None:
    """Six rows of four numbers are not eight of three."""
    with pytest.raises(ValueError, match=r"the shape \[-1, 3\] makes 8 rows of 6 of shape \(4,\)"):
        tensors([np.zeros((6, 4))], [[-1, 3]], torch.float32)
    assert tensors([np.zeros((6, 4))], [[-1, 2, 2]], torch.float32)[0].shape == (6, 2, 2)


def test_weights_of_classes_are_where_the_model_is() -> None:
    model, loss = torch.nn.Linear(1, 2, device="meta"), torch.nn.CrossEntropyLoss(weight=torch.ones(2))
    params = {"loss": loss, "loss_constructors": None, "loss_weights": None, "label_cols": ["y"]}
    Losses(params, model, None)
    assert loss.weight.device.type == "meta"


def test_a_frame_of_pandas() -> None:
    with pytest.raises(TypeError, match=r"DataFrame is no DataFrame of Spark: spark\.createDataFrame makes"):
        dataset.write(pandas.DataFrame({"x": [1.0]}), None, ["x"])


def test_validation_by_a_list() -> None:
    with pytest.raises(ValueError, match=r"validation=.*late.* is no fraction between 0 and 1"):
        dataset._split(MagicMock(columns=["x"]), ["x"], ["late"], 0)  # type: ignore[arg-type]


def test_a_model_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is pickled can be read where there is no GPU, and the optimizer stays that of the model."""
    is_on = True

    def tag(storage: Any) -> str | None:
        return "cuda:0" if is_on else None

    one = estimator(tmp_path, loss=torch.nn.CrossEntropyLoss(weight=torch.ones(2)))
    registry = list(torch.serialization._package_registry)
    monkeypatch.setattr(torch.serialization, "_package_registry", registry)
    torch.serialization.register_package(0, tag, lambda storage, location: None)
    with pytest.raises(RuntimeError, match="CUDA"):
        cloudpickle.loads(cloudpickle.dumps(one.getModel()))  # as it would be on a GPU
    monkeypatch.setattr(torch_estimator, "_is_elsewhere", lambda model: True)
    copied = one._packed({"model": one.getModel(), "optimizer": one.getOptimizer(), "loss": one.getLoss()})
    is_on = False
    values = cloudpickle.loads(cloudpickle.dumps(copied))
    assert values["optimizer"].param_groups[0]["params"][0] is values["model"].weight
    assert torch.equal(values["model"].weight, one.getModel().weight)


def test_a_run_of_another_model(session: Any, tmp_path: Path) -> None:
    """And columns of all names and types go through transform."""
    rows = [(float(n), 1.0, n, [n]) for n in range(4)]
    frame = session.createDataFrame(rows, "x double, y double, `a.b` int, list array<int>")
    model = torch.nn.Linear(1, 1)
    values: dict[str, Any] = {"backend": cases.InProcess(), "run_id": "one", "input_shapes": [[-1, 1]]}
    values |= {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01)}
    fitted = estimator(tmp_path, **values).fit(frame.select("x", "y"))
    found = fitted.transform(frame.selectExpr("list", "`a.b`", "x", "null as y", "current_timestamp() as t"))
    assert found.columns == ["list", "a.b", "x", "y", "t", "y__output"]
    assert [tuple(row)[:3] for row in found.collect()] == [([n], n, float(n)) for n in range(4)]
    model = torch.nn.Sequential(model)
    values |= {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01)}
    with pytest.raises(
        ValueError, match=r"run 'one' has a checkpoint of another model .*: choose another run_id"
    ):
        estimator(tmp_path, **values).fit(frame)


def test_more_ranks_than_this_machine_has_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """No executor will come that they could wait for."""
    monkeypatch.setattr(runner, "_context", lambda name: SimpleNamespace(master="local[2,4]"))
    monkeypatch.setattr(runner, "slots", lambda context: 2)
    with pytest.raises(ValueError, match="runs 2 tasks at a time, too few for num_proc=3"):
        runner.run(print, num_proc=3)


def test_ranks_draw_other_numbers(session: Any, tmp_path: Path) -> None:
    """With a seed, too: dropout of one rank is not that of the other."""

    def metric(output: Any, label: Any) -> Any:
        import horovod.torch as hvd

        (tmp_path / str(hvd.rank())).write_text(str(torch.rand(1).item()))
        return torch.zeros(())

    frame = session.createDataFrame([([1.0, 2.0, 3.0], 1.0)] * 4, "x array<double>, y double")
    estimator(tmp_path, num_proc=2, random_seed=5, metrics=[metric]).fit(frame)
    assert (tmp_path / "0").read_text() != (tmp_path / "1").read_text()
