"""horovod.spark.lightning on real executors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightning")

import estimator_cases as cases
import lightning
import torch
from pyspark.ml import Pipeline, PipelineModel
from torch.nn import functional as F

from horovod.spark.lightning import TorchEstimator


@pytest.fixture(scope="module")
def frame(session: Any) -> Any:
    return cases.plane(session).cache()


def module(package: Any = lightning, rate: float = 0.1) -> Any:
    """A LightningModule for the plane of ``cases``; its class travels with it."""

    class Plane(package.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.save_hyperparameters({"rate": np.float64(rate)})

        def forward(self, x: Any) -> Any:
            return self.layer(x)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = F.mse_loss(self(batch["x"])[:, 0], batch["y"])
            self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", F.mse_loss(self(batch["x"])[:, 0], batch["y"]), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=rate, momentum=0.5)

    torch.manual_seed(1)
    return Plane()


def estimator(folder: Path, **values: Any) -> TorchEstimator:
    own = {"model": module()}
    return TorchEstimator(**cases.of_the_plane(folder, **{**own, **values}))


def test_labels_that_are_nan(tmp_path: Path) -> None:
    cases.refuses_nan(estimator(tmp_path))


def test_two_ranks(session: Any, frame: Any, tmp_path: Path) -> None:
    fitted = estimator(tmp_path, num_proc=2, validation=0.25).fit(frame)
    history = fitted.getHistory()
    assert [entry["epoch"] for entry in history] == list(range(6))
    assert history[-1]["loss"] < 0.05 and history[-1]["val_loss"] < 0.05
    rows = fitted.transform(frame).collect()
    assert len(rows) == cases.ROWS and max(cases.errors(rows)) < 0.5


def test_the_accuracy_of_the_same_model_without_spark(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    images, numbers, frame = cases.digits(session)
    x, y = torch.tensor(images), torch.tensor(numbers)

    class Digits(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
            )

        def forward(self, image: Any) -> Any:
            return self.layers(image)

        def training_step(self, batch: Any, index: int) -> Any:
            return F.cross_entropy(self(batch["image"]), batch["number"].long())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.002)

    def accuracy(model: Any) -> float:
        return float((model(x).argmax(1) == y).float().mean())

    torch.manual_seed(2)
    alone = Digits()
    torch.manual_seed(2)
    model = Digits()
    data = [{"image": a, "number": b} for a, b in zip(x.split(32), y.split(32), strict=True)]
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=8, accelerator="cpu", devices=1, **options).fit(
        alone, torch.utils.data.DataLoader(data, batch_size=None)
    )
    values = {
        "model": model,
        "feature_cols": ["image"],
        "label_cols": ["number"],
        "epochs": 8,
        "batch_size": 32,
    }
    fitted = estimator(tmp_path, backend=cases.InProcess(), **values).fit(frame)
    assert accuracy(fitted.getModel()) > accuracy(alone) - 0.02 > 0.9
    found = np.array([row["number__output"].toArray().argmax() for row in fitted.transform(frame).collect()])
    assert (found == numbers).mean() == pytest.approx(accuracy(fitted.getModel()), abs=0.002)


def test_pipeline_and_files(session: Any, frame: Any, tmp_path: Path) -> None:
    """A module of the package pytorch_lightning, and a ModelCheckpoint."""
    package = pytest.importorskip("pytorch_lightning")
    best = package.callbacks.ModelCheckpoint(monitor="val_loss")
    values: dict[str, Any] = {"model": module(package), "callbacks": [best], "validation": "late"}
    fitted = Pipeline(stages=[estimator(tmp_path, backend=cases.InProcess(), **values)]).fit(frame)
    fitted.save(str(tmp_path / "fitted"))
    wanted = [row["y__output"] for row in fitted.transform(frame).collect()]
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    assert [row["y__output"] for row in loaded.transform(frame).collect()] == wanted
    assert loaded.stages[0].getHistory() == fitted.stages[0].getHistory()


def test_cross_validator(session: Any, frame: Any, tmp_path: Path) -> None:
    one = estimator(tmp_path, backend=cases.InProcess())
    good, bad = cases.cross_validated(one, frame, one.epochs, [8, 1], str(tmp_path / "validated"))
    assert good < 0.1 < bad


def test_a_run_goes_on(session: Any, frame: Any, tmp_path: Path) -> None:
    """With the state of its optimizer, as if it had not ended."""
    values: dict[str, Any] = {"backend": cases.InProcess(), "shuffle": False, "epochs": 4}
    whole_run, one = estimator(tmp_path, **values), estimator(tmp_path, run_id="one", **values)
    frame.write.parquet(one.getStore().get_train_data_path())  # the same files for all, in the same order
    whole = whole_run.fit_on_parquet().getHistory()
    one.fit_on_parquet({one.epochs: 2})
    history = one.fit_on_parquet().getHistory()
    assert [entry["loss"] for entry in history] == pytest.approx([entry["loss"] for entry in whole], rel=1e-3)


def test_a_plain_module(session: Any, frame: Any, tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    values: dict[str, Any] = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    values |= {"loss": F.mse_loss, "trainer_args": {"gradient_clip_val": 10.0}, "terminate_on_nan": True}
    fitted = estimator(tmp_path, backend=cases.InProcess(), **values).fit(frame)
    assert max(cases.errors(fitted.transform(frame).collect())) < 0.5
    nan = frame.selectExpr("x", "double('nan') as y")
    with pytest.raises(ValueError, match="terminate_on_nan"):
        estimator(tmp_path, backend=cases.InProcess(), **values).fit(nan)
    with pytest.raises(ValueError, match="that of the LightningModule"):
        estimator(tmp_path, backend=cases.InProcess(), loss=F.mse_loss).fit(frame)
