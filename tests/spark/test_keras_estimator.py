"""horovod.spark.keras on real executors, for Keras 3 and tf_keras on TensorFlow."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import estimator_cases as cases
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import DenseVector

from horovod.spark.keras import KerasEstimator
from horovod.spark.keras.packing import archive, unpacked
from horovod.spark.keras.training import as_arrays, load_arrays, of_rank

PACKAGES = ["keras", "tf_keras"]
# Its ranks load TensorFlow anew. That two of them average with tf_keras, too, is tried in tests/tf.
KERAS_ALONE = pytest.mark.parametrize(
    "keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.full)], indirect=True
)


@pytest.fixture(scope="module")
def frame(session: Any) -> Any:
    return cases.plane(session).cache()


@pytest.fixture(params=PACKAGES)
def keras(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = pytest.importorskip(request.param)
    if request.param == "keras" and found.backend.backend() != "tensorflow":
        pytest.skip("KERAS_BACKEND is another one")
    return found


def estimator(keras: Any, folder: Path, **values: Any) -> KerasEstimator:
    """For the plane of ``cases``."""
    keras.utils.set_random_seed(1)
    own = {
        "model": keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)]),
        "optimizer": keras.optimizers.SGD(0.1),
        "loss": "mse",
    }
    return KerasEstimator(**cases.of_the_plane(folder, **{**own, **values}))


def test_labels_that_are_nan(keras: Any, tmp_path: Path) -> None:
    cases.refuses_nan(estimator(keras, tmp_path))


@KERAS_ALONE
def test_the_accuracy_of_the_same_model_without_spark(session: Any, keras: Any, tmp_path: Path) -> None:
    """On two ranks, with validation, metrics, and a rate of one rank afterwards."""
    pytest.importorskip("sklearn")
    images, numbers, frame = cases.digits(session)

    def new() -> Any:
        keras.utils.set_random_seed(2)
        layers = [
            keras.layers.Input((64,)),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
        return keras.Sequential(layers)

    options: dict[str, Any] = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
    alone = new()
    alone.compile(optimizer=keras.optimizers.Adam(0.002), **options)
    alone.fit(images, numbers, batch_size=32, epochs=8, verbose=0)
    values = {
        "model": new(),
        "feature_cols": ["image"],
        "label_cols": ["number"],
        "epochs": 8,
        "optimizer": keras.optimizers.Adam(0.002),
        "batch_size": 16,
    }
    fitted = estimator(keras, tmp_path, num_proc=2, validation=0.1, **values, **options).fit(frame)
    history = fitted.getHistory()
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} == set(history) and len(history["loss"]) == 8
    model = fitted.keras()
    accuracy = float((model.predict(images, verbose=0).argmax(1) == numbers).mean())
    wanted = alone.evaluate(images, numbers, verbose=0)[1]
    assert accuracy > wanted - 0.03 > 0.9 and history["val_accuracy"][-1] > 0.8
    assert float(model.optimizer.learning_rate) == pytest.approx(0.002)
    rows = fitted.transform(frame).collect()
    assert isinstance(rows[0]["number__output"], DenseVector) and len(rows[0]["number__output"]) == 10
    found = np.array([row["number__output"].toArray().argmax() for row in rows])
    assert (found == numbers).mean() == pytest.approx(accuracy, abs=0.002)


def test_pipeline_and_files(session: Any, keras: Any, frame: Any, tmp_path: Path) -> None:
    """With a layer that Keras does not know, and a loss of one's own."""

    class Shifted(keras.layers.Layer):  # type: ignore[misc,name-defined]
        def call(self, inputs: Any) -> Any:
            return inputs + 0.25

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False), Shifted()])
    values: dict[str, Any] = {
        "model": model,
        "custom_objects": {"Shifted": Shifted},
        "loss": keras.losses.Huber(2.0),
    }
    one = estimator(keras, tmp_path, backend=cases.InProcess(), **values)
    one.save(str(tmp_path / "estimator"))
    fitted = Pipeline(stages=[one]).fit(frame)
    fitted.save(str(tmp_path / "fitted"))
    rows = fitted.transform(frame).collect()
    assert max(cases.errors(rows)) < 0.5
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    again = loaded.transform(frame).collect()
    assert [row["y__output"] for row in again] == pytest.approx([row["y__output"] for row in rows])
    assert loaded.stages[0].getHistory() == fitted.stages[0].getHistory()
    other = KerasEstimator.load(str(tmp_path / "estimator")).setStore(one.getStore())
    assert max(cases.errors(other.setBackend(cases.InProcess()).fit(frame).transform(frame).collect())) < 0.5


def test_cross_validator(session: Any, frame: Any, tmp_path: Path) -> None:
    one = estimator(importlib.import_module("keras"), tmp_path, backend=cases.InProcess())
    good, bad = cases.cross_validated(one, frame, one.epochs, [8, 1], str(tmp_path / "validated"))
    assert good < 0.1 < bad


def test_a_run_goes_on(session: Any, keras: Any, frame: Any, tmp_path: Path) -> None:
    """With the state of its optimizer, as if it had not ended; then so many more epochs."""
    values: dict[str, Any] = {"shuffle": False, "optimizer": keras.optimizers.Adam(0.1), "epochs": 4}
    whole_run = estimator(keras, tmp_path, backend=cases.InProcess(), **values)
    one = estimator(keras, tmp_path, backend=cases.InProcess(), run_id="one", **values)
    frame.write.parquet(one.getStore().get_train_data_path())  # the same files for all, in the same order
    whole = whole_run.fit_on_parquet().getHistory()
    one.fit_on_parquet({one.epochs: 2})
    history = one.fit_on_parquet().getHistory()
    assert history["loss"] == pytest.approx(whole["loss"], rel=1e-3)
    assert len(one.fit_on_parquet().getHistory()["loss"]) == 8


def test_several_inputs_and_labels(session: Any, keras: Any, frame: Any, tmp_path: Path) -> None:
    """With weights of rows and losses, callbacks, and a checkpoint callback."""
    a, b = keras.layers.Input((3,)), keras.layers.Input((1,))
    both = keras.layers.Concatenate()([a, b])
    model = keras.Model(
        [a, b], [keras.layers.Dense(1, name="one")(both), keras.layers.Dense(2, name="two")(both)]
    )
    many = frame.selectExpr("x", "y as n", "y", "array(y, 2 * y) as pair", "if(late, 0.0, 1.0) as weight")
    values: dict[str, Any] = {"model": model, "feature_cols": ["x", "n"], "label_cols": ["y", "pair"]}
    values |= {
        "loss": ["mse", "mse"],
        "loss_weights": [0.7, 0.3],
        "sample_weight_col": "weight",
        "epochs": 20,
    }
    values |= {"validation": 0.2, "callbacks": [keras.callbacks.EarlyStopping("val_loss", patience=3)]}
    best = keras.callbacks.ModelCheckpoint(
        "best.weights.h5", "val_loss", save_best_only=True, save_weights_only=True
    )
    values |= {
        "checkpoint_callback": best,
        "optimizer": keras.optimizers.SGD(0.05),
        "backward_passes_per_step": 2,
    }
    fitted = estimator(keras, tmp_path, backend=cases.InProcess(), **values).fit(many)
    for row in fitted.transform(many).collect():
        assert row["y__output"] == pytest.approx(row["y"], abs=0.5)
        assert row["pair__output"] == pytest.approx(row["pair"], abs=0.8)


def test_a_model_that_is_not_built(session: Any, keras: Any, frame: Any, tmp_path: Path) -> None:
    """With an optimizer by name, and what the model was compiled with."""
    model = keras.Sequential([keras.layers.Dense(2, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    values: dict[str, Any] = {"model": model, "loss": None, "epochs": 1, "backend": cases.InProcess()}
    for optimizer in ("adam", None):
        fitted = estimator(keras, tmp_path, optimizer=optimizer, **values).fit(frame)
        rows = fitted.transform(frame).collect()
        wanted = fitted.keras().predict(np.array([row["x"].toArray() for row in rows]), verbose=0)[:, 0]
        np.testing.assert_allclose([row["y__output"] for row in rows], wanted, rtol=1e-5, atol=1e-6)
        assert type(fitted.keras().optimizer).__name__.lower() == (optimizer or "sgd")


def test_what_the_model_was_compiled_with(keras: Any, tmp_path: Path) -> None:
    """Is what is not given; what is given goes before it."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mae", metrics=["mse"], loss_weights=[0.5])

    def told(**values: Any) -> dict[str, Any]:
        one = estimator(keras, tmp_path, model=model, **values)
        return unpacked(one._packed(one._plan_values()))

    values = told(optimizer=None, loss=None)
    assert isinstance(values["optimizer"], keras.optimizers.Adam)
    assert (values["loss"], values["metrics"], values["loss_weights"]) == ("mae", ["mse"], [0.5])
    values = told(metrics=["mape"])
    assert (values["loss"], values["metrics"]) == ("mse", ["mape"])


def test_a_run_of_another_model(session: Any, keras: Any, frame: Any, tmp_path: Path) -> None:
    values: dict[str, Any] = {"backend": cases.InProcess(), "run_id": "one", "epochs": 1}
    estimator(keras, tmp_path, **values).fit(frame)
    for widths in ((2, 1), (2,)):
        model = keras.Sequential([keras.layers.Input((3,)), *map(keras.layers.Dense, widths)])
        with pytest.raises(
            ValueError, match=r"run 'one' has a checkpoint of another model .* another run_id"
        ):
            estimator(keras, tmp_path, model=model, **values).fit(frame)


def test_a_loss_whose_source_is_nowhere(keras: Any) -> None:
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", eval("lambda wanted, found: found"))
    with ThreadPoolExecutor(4) as threads:  # as those of a CrossValidator
        assert all(archived.data for archived in threads.map(archive, [model] * 60))
    assert "get_compile_config" not in vars(model)


@pytest.mark.parametrize("seed", [None, 1])
def test_ranks_drop_other_units(keras: Any, seed: int | None) -> None:
    """Those of layers with and without a seed of their own; with a seed of the run, as in the last run."""
    layers = [keras.layers.Dropout(0.5), keras.layers.Dropout(0.5, seed=7)]
    x = keras.layers.Input((64,))
    model = keras.Model(x, [layer(x) for layer in layers])

    def dropped(rank: int) -> list[list[bool]]:
        params = of_rank({"model": archive(model), "random_seed": seed}, rank)
        outputs = params["model"](np.ones((1, 64), np.float32), training=True)
        return [(np.asarray(output)[0] == 0).tolist() for output in outputs]

    first, second = dropped(0), dropped(1)
    assert first[0] != second[0] and first[1] != second[1]
    assert seed is None or first == dropped(0)


def test_a_checkpoint_has_the_learning_rate_of_one_rank(keras: Any) -> None:
    def compiled() -> Any:
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    again = compiled()
    assert load_arrays(as_arrays(compiled(), {"done": 3}, 2), again, 4)["done"] == 3
    assert float(np.asarray(again.optimizer.learning_rate)) == pytest.approx(0.2)
