"""horovod.spark.torch on real executors: fit, transform, files, pipelines, validation, failures, resuming."""

import errno
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import estimator_cases as cases
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors
from torch.nn import functional as F

from horovod.spark.common.datamodule import ParquetDataModule
from horovod.spark.common.store import LocalStore, Store
from horovod.spark.torch import TorchEstimator, TorchModel


def estimator(folder: Path, **values: Any) -> TorchEstimator:
    """For the plane of ``cases``."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    rate = np.logspace(-2, -1, 2)[1]  # a number of NumPy
    own = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=rate), "loss": F.mse_loss}
    return TorchEstimator(**cases.of_the_plane(folder, **{**own, **values}))


@pytest.fixture(scope="module")
def frame(session: Any) -> Any:
    return cases.plane(session).cache()


def test_labels_that_are_nan(tmp_path: Path) -> None:
    cases.refuses_nan(estimator(tmp_path))


def test_two_ranks(session: Any, frame: Any, tmp_path: Path) -> None:
    """Each gets half of the rows; validation, metrics, and what is left in the store."""
    fitted = estimator(tmp_path, num_proc=2, validation=0.25, metrics=[F.l1_loss], loss=[F.mse_loss]).fit(
        frame
    )
    history = fitted.getHistory()
    assert [entry["epoch"] for entry in history] == list(range(6))
    first, last = history[0], history[-1]
    assert last["train"]["loss"] < 0.1 * first["train"]["loss"]
    assert 0 < last["validation"]["loss"] < 0.1
    assert last["validation"]["all_metrics"][0]["group_0_y"] == pytest.approx(
        last["validation"]["loss"] ** 0.5, rel=1
    )
    rows = fitted.transform(frame).collect()
    assert len(rows) == cases.ROWS and max(cases.errors(rows)) < 0.5
    assert isinstance(rows[0]["x"], DenseVector) and rows[0]["x"] == frame.first()["x"]
    rates = {group["lr"] for group in fitted.getOptimizer().param_groups}
    assert rates == {0.1}, "that of one rank"
    left = {path.name for path in (tmp_path / "store").rglob("*.parquet")}
    assert not left, "data are removed"


def test_the_accuracy_of_the_same_model_without_spark(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    images, numbers, frame = cases.digits(session)
    x, y = torch.tensor(images), torch.tensor(numbers)

    def new() -> tuple[Any, Any]:
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        return model, torch.optim.Adam(model.parameters(), lr=0.002)

    def accuracy(model: Any) -> float:
        return float((model(x).argmax(1) == y).float().mean())

    alone, optimizer = new()
    for _, part in itertools.product(range(8), torch.arange(len(x)).split(32)):
        optimizer.zero_grad()
        F.cross_entropy(alone(x[part]), y[part]).backward()
        optimizer.step()
    model, optimizer = new()
    values = {"model": model, "optimizer": optimizer, "feature_cols": ["image"], "label_cols": ["number"]}
    values |= {
        "loss": torch.nn.CrossEntropyLoss(),
        "epochs": 8,
        "batch_size": 16,
    }
    fitted = estimator(tmp_path, num_proc=2, **values).fit(frame)
    assert accuracy(fitted.getModel()) > accuracy(alone) - 0.02 > 0.9
    rows = fitted.transform(frame).collect()
    assert isinstance(rows[0]["number__output"], DenseVector) and len(rows[0]["number__output"]) == 10
    found = np.array([row["number__output"].toArray().argmax() for row in rows])
    assert (found == numbers).mean() == pytest.approx(accuracy(fitted.getModel()), abs=0.002)


def test_pipeline_and_files(session: Any, frame: Any, tmp_path: Path) -> None:
    array = vector_to_array("x")
    parts = frame.select("y", *(array[place].alias(f"x{place}") for place in range(3)))
    stages = [
        VectorAssembler(inputCols=["x0", "x1", "x2"], outputCol="x"),
        estimator(tmp_path, backend=cases.InProcess()),
    ]
    pipeline = Pipeline(stages=stages)
    pipeline.save(str(tmp_path / "pipeline"))
    fitted = pipeline.fit(parts)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    wanted = [row["y__output"] for row in fitted.transform(parts).collect()]

    again = Pipeline.load(str(tmp_path / "pipeline")).getStages()[1]
    assert again.getBackend() is None and again.getStore() is None, "what belongs to a session is not saved"
    optimizer = again.getOptimizer()
    assert optimizer.param_groups[0]["params"][0] is next(again.getModel().parameters())
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    assert [row["y__output"] for row in loaded.transform(parts).collect()] == wanted
    assert loaded.stages[1].getHistory() == fitted.stages[1].getHistory()
    with pytest.raises(ValueError, match="no TorchEstimator"):
        TorchEstimator.load(str(next((tmp_path / "fitted" / "stages").glob("1_*"))))


def test_cross_validator(session: Any, frame: Any, tmp_path: Path) -> None:
    one = estimator(tmp_path, backend=cases.InProcess())
    good, bad = cases.cross_validated(one, frame, one.epochs, [8, 1], str(tmp_path / "validated"))
    assert good < 0.1 < bad


def test_a_rank_raises(session: Any, frame: Any, tmp_path: Path) -> None:
    def planted(output: Any, label: Any) -> Any:
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        estimator(tmp_path, num_proc=2, loss=planted).fit(frame)
    assert str(caught.value.__cause__).startswith("on rank ")
    assert "in planted" in str(caught.value.__cause__)


def test_a_disk_that_fills_up(session: Any, frame: Any, tmp_path: Path) -> None:
    """While a checkpoint is written: the run ends, and goes on from the one before when there is room."""

    class Fills(LocalStore):
        room = 2

        def write(self, path: str, data: bytes) -> None:
            self.room -= "checkpoint" in path
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            super().write(path, data)

    store = Fills(str(tmp_path / "store"))
    values = {"num_proc": 2, "store": store, "run_id": "one", "epochs": 4}
    with pytest.raises(OSError, match="No space left on device") as caught:
        estimator(tmp_path, **values).fit(frame)
    assert str(caught.value.__cause__).startswith("on rank 0 ("), caught.value.__cause__
    values["store"] = LocalStore(store.prefix_path)
    history = estimator(tmp_path, **values).fit(frame).getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2, 3]


def test_a_run_goes_on(session: Any, frame: Any, tmp_path: Path) -> None:
    """One that failed has the epochs that are missing; one that is complete has so many more."""
    seen: list[int] = []

    def fails_once(entry: Any) -> None:
        seen.append(entry["epoch"])
        if seen == [0, 1]:
            raise InterruptedError("planted")

    one = estimator(tmp_path, backend=cases.InProcess(), run_id="one", epochs=4, callbacks=[fails_once])
    with pytest.raises(InterruptedError):
        one.fit(frame)
    history = one.setCallbacks(None).fit(frame).getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2, 3]
    longer = one.fit(frame).getHistory()
    assert longer[:4] == history and len(longer) == 8
    assert longer[-1]["train"]["loss"] < longer[3]["train"]["loss"] < longer[0]["train"]["loss"]


def test_several_inputs_and_labels_of_all_kinds(session: Any, tmp_path: Path) -> None:
    """A scalar, an array, a sparse vector in; an integer, an array, a sparse and a dense vector out."""
    lines = [
        (
            float(n),
            [n, n + 1],
            Vectors.sparse(4, {n % 4: 1.0}),
            n % 2,
            [0.5 * n, 1.0],
            Vectors.dense(n, 2),
            1.0,
        )
        for n in range(24)
    ]
    columns = "a float, b array<int>, c vector, i bigint, r array<double>, v vector, w double"
    names = [part.split()[0] for part in columns.split(", ")]
    frame = session.createDataFrame(lines, names).selectExpr(
        "float(a) as a", "b", "c", "i", "c as s", "r", "v", "w"
    )

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(7, 2)

        def forward(self, a: Any, b: Any, c: Any) -> Any:
            assert (a.shape[1:], b.shape[1:], c.shape[1:]) == ((1,), (2,), (4,))
            both = self.layer(torch.cat([a, b, c], 1))
            return a % 2 + 0.2 + 0 * both[:, :1], both, c + 0 * both[:, :1], both

    model = Model()
    one = estimator(
        tmp_path,
        backend=cases.InProcess(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-4),
        feature_cols=["a", "b", "c"],
        input_shapes=[[-1, 1], [-1, 2], [-1, 4]],
        label_cols=["i", "r", "s", "v"],
        loss=[F.mse_loss, F.l1_loss, F.mse_loss, torch.nn.MSELoss()],
        loss_weights=[0.5, 0.2, 0.2, 0.1],
        metrics=[[F.mse_loss] * 4, F.l1_loss],
        sample_weight_col="w",
        epochs=1,
    )
    fitted = one.fit(frame)
    metrics = fitted.getHistory()[0]["train"]["all_metrics"]
    assert [sorted(group) for group in metrics] == [
        [f"group_{n}_{label}" for label in "irsv"] for n in (0, 1)
    ]
    rows = fitted.setOutputCols(["i2", "r2", "s2", "v2"]).transform(frame).collect()
    for row in rows:
        assert row["i2"] == row["i"] and isinstance(row["i2"], int)
        assert row["s2"] == row["c"] and isinstance(row["s2"], SparseVector)
        assert isinstance(row["v2"], DenseVector) and isinstance(row["r2"], list)
        a, b, c = row["a"], row["b"], row["c"].toArray()
        both = fitted.getModel().layer(torch.tensor([a, *b, *c], dtype=torch.float32)).detach().numpy()
        np.testing.assert_allclose(row["v2"].toArray(), both, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(row["r2"], both, rtol=1e-4, atol=1e-5)


def test_weights_of_rows(session: Any, frame: Any, tmp_path: Path) -> None:
    """Rows of weight 0 are not learned from."""
    wrong = frame.selectExpr("x", "if(late, 100.0, y) as y", "if(late, 0.0, 1.0) as weight")
    for loss in (F.mse_loss, torch.nn.MSELoss()):
        values = {"sample_weight_col": "weight", "loss": loss, "backend": cases.InProcess()}
        fitted = estimator(tmp_path, **values).fit(wrong)
        assert max(cases.errors(fitted.transform(frame).collect())) < 0.5


@pytest.mark.parametrize("loss", [torch.nn.CrossEntropyLoss(), F.cross_entropy], ids=["module", "function"])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_classes(session: Any, tmp_path: Path, loss: Any, weight: str | None) -> None:
    """Their numbers stay integers, and so do inputs of an Embedding."""
    lines = [(n % 5, [n % 5, n % 2], n % 5 % 3, 1.0) for n in range(60)]
    frame = session.createDataFrame(lines, "one int, pair array<bigint>, kind int, weight double")

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = torch.nn.Embedding(5, 8), torch.nn.Linear(18, 3)

        def forward(self, one: Any, pair: Any) -> Any:
            return self.layer(torch.cat([self.table(one), self.table(pair[:, 0]), pair], 1))

    model = Embedded()
    values = {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.03),
        "label_cols": ["kind"],
    }
    values |= {
        "feature_cols": ["one", "pair"],
        "input_dtypes": ["int64", "int64"],
        "sample_weight_col": weight,
    }
    fitted = estimator(tmp_path, backend=cases.InProcess(), loss=loss, **values).fit(frame)
    rows = fitted.transform(frame).collect()
    assert all(row["kind__output"].toArray().argmax() == row["kind"] for row in rows)


def test_integers_that_are_no_classes(session: Any, tmp_path: Path) -> None:
    """Of features and labels: they become floating-point numbers, as the model's are."""
    frame = session.createDataFrame([(n % 5, 3 * (n % 5)) for n in range(60)], "n int, triple bigint")
    model = torch.nn.Linear(1, 1)
    values = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.03)}
    values |= {"feature_cols": ["n"], "input_shapes": [[-1, 1]], "label_cols": ["triple"], "epochs": 12}
    fitted = estimator(tmp_path, backend=cases.InProcess(), **values).fit(frame)
    rows = fitted.transform(frame).collect()
    assert all(row["triple__output"] == row["triple"] for row in rows)


def test_a_row_that_is_left_over(session: Any, tmp_path: Path) -> None:
    """Batches of 8, 8 and 1 would end in one that BatchNorm refuses."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    values = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "epochs": 1}
    fitted = estimator(tmp_path, backend=cases.InProcess(), **values).fit(cases.plane(session, 17))
    assert fitted.getModel()[0].num_batches_tracked == 2


def test_validation_by_a_column(session: Any, frame: Any, tmp_path: Path) -> None:
    odd = frame.selectExpr("x", "if(late, y + 3, y) as y", "late")
    fitted = estimator(tmp_path, backend=cases.InProcess(), validation="late").fit(odd)
    last = fitted.getHistory()[-1]
    assert last["train"]["loss"] < 0.05 and last["validation"]["loss"] == pytest.approx(9, rel=0.1)


def test_steps_of_ones_own(session: Any, frame: Any, tmp_path: Path) -> None:
    """train_minibatch_fn, loss_constructors, transformation_fn, the number of steps, gradients added up."""

    def step(
        model: Any,
        optimizer: Any,
        transform_outputs: Any,
        loss_fn: Any,
        inputs: Any,
        labels: Any,
        weights: Any,
    ) -> Any:
        optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, weights)
        loss.backward()
        optimizer.step()
        return outputs, loss

    def halved(rows: Any) -> Any:
        rows["y"] = rows["y"] / 2
        return rows.assign(other=1.0)

    values: dict[str, Any] = {"backend": cases.InProcess(), "loss": None, "transformation_fn": halved}
    values["transformation_removed_fields"] = ["other"]
    values["loss_constructors"] = [lambda model, **_: torch.nn.MSELoss()]
    fitted = estimator(tmp_path, train_minibatch_fn=step, **values).fit(frame)
    for row in fitted.transform(frame).collect():
        assert row["y__output"] == pytest.approx(row["y"] / 2, abs=0.3)
    values |= {"train_steps_per_epoch": 5, "backward_passes_per_step": 2, "epochs": 10}
    left = tmp_path / "left"

    class Opened(ParquetDataModule):
        def __enter__(self) -> Any:
            self.has_begun = True
            return self

        def __exit__(self, *_: Any) -> None:
            left.write_text(str(self.has_begun))

        def train_data(self) -> Any:
            return super().train_data() if self.has_begun else None

    for module in (None, ParquetDataModule, Opened):
        fitted = estimator(tmp_path, data_module=module, validation=0.2, **values).fit(frame)
        assert fitted.getHistory()[-1]["validation"]["loss"] < 0.1
        assert left.exists() == (module is Opened)


def test_fit_on_parquet(session: Any, frame: Any, tmp_path: Path) -> None:
    store = Store.create(str(tmp_path / "store"))
    arrays = frame.select(vector_to_array("x").alias("x"), "y")
    arrays.write.parquet(store.get_train_data_path())
    fitted = estimator(tmp_path, backend=cases.InProcess(), store=store).fit_on_parquet()
    assert max(cases.errors(fitted.transform(arrays).collect())) < 0.5


def test_predictions_of_ones_own(session: Any, frame: Any, tmp_path: Path) -> None:
    """A class that is derived from the model; a column that is there already is replaced."""
    fitted = estimator(tmp_path, backend=cases.InProcess(), epochs=1).fit(frame)

    class Negative(TorchModel):
        def get_prediction_fn(self) -> Any:
            usual = super().get_prediction_fn()
            return lambda model, features: -usual(model, features)

    values = {param.name: value for param, value in fitted.extractParamMap().items()}
    twice = Negative(**values).transform(fitted.transform(frame))
    assert twice.columns.count("y__output") == 1
    usual = [row["y__output"] for row in fitted.transform(frame).collect()]
    assert [row["y__output"] for row in twice.collect()] == pytest.approx([-value for value in usual])


def test_bad_models_and_rows(session: Any, frame: Any, tmp_path: Path) -> None:
    one = estimator(tmp_path, backend=cases.InProcess(), epochs=1)
    with pytest.raises(ValueError, match="2 losses are neither one nor one for each label"):
        one.copy({one.loss: [F.mse_loss, F.mse_loss]}).fit(frame)
    with pytest.raises(ValueError, match="gives 1 outputs for 2 labels"):
        one.copy({one.label_cols: ["y", "y2"]}).fit(frame.selectExpr("*", "y as y2"))
    other = torch.optim.SGD(torch.nn.Linear(9, 1).parameters(), lr=0.1)
    with pytest.raises(ValueError, match="other parameters than those of the model"):
        one.copy({one.optimizer: other}).fit(frame)
    with pytest.raises(TypeError, match="the param 'callbacks' cannot be pickled"):
        one.copy({one.callbacks: [threading.Lock()]}).save(str(tmp_path / "never"))
