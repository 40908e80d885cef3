"""What the tests of the estimators share: data, a backend, and the modules of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder

from horovod.common import basics
from horovod.spark.common.store import Store

ROWS = 96
WEIGHTS = np.array([1.0, -2.0, 0.5])


class InProcess:
    """A backend of one rank, which is this process. It is derived from nothing."""

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []

    def run(self, fn: Any, args: Any, kwargs: Any, env: Any) -> list[Any]:
        self.calls.append(dict(env))
        try:
            return [fn(*args, **kwargs)]
        finally:
            basics.shutdown()

    def num_processes(self) -> int:
        return 1


def plane(session: Any, rows: int = ROWS) -> Any:
    """Points of a plane: a vector ``x`` of three numbers and ``y``, with ``late`` for every fourth row."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 3))
    y = x @ WEIGHTS + 0.25
    lines = [
        (Vectors.dense(a), float(b), number % 4 == 3) for number, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    return session.createDataFrame(lines, ["x", "y", "late"])


def of_the_plane(folder: Path, **values: Any) -> dict[str, Any]:
    """The params of an estimator that learns it."""
    given = {
        "store": Store.create(str(folder / "store")),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": 8,
        "epochs": 6,
        "verbose": 0,
        "partitions_per_process": 1,
    }
    return {**given, **values}


def digits(session: Any) -> tuple[Any, Any, Any]:
    """scikit-learn's handwritten digits: images, their numbers, and both as a DataFrame."""
    from sklearn.datasets import load_digits

    images, numbers = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    lines = [(image.tolist(), int(number)) for image, number in zip(images, numbers, strict=True)]
    return images, numbers, session.createDataFrame(lines, "image array<float>, number int")


def errors(rows: list[Any]) -> Iterator[float]:
    return (abs(row["y"] - row["y__output"]) for row in rows)


def refuses_nan(one: Any) -> None:
    """An estimator that has labels which are NaN, and so losses, names their column, and keeps nothing."""
    path = Path(one.getStore().get_train_data_path())
    path.mkdir(parents=True)
    table = pa.table({"x": [[1.0, 2.0, 3.0]] * 4, "y": [0.5, np.nan, 0.0, 1.0]})
    pyarrow.parquet.write_table(table, path / "part.parquet")
    with pytest.raises(ValueError, match="the loss of epoch 0 is NaN, and so are values of column 'y'"):
        one.setBackend(InProcess()).fit_on_parquet()
    assert not Path(one.getStore().get_runs_path()).exists()


def cross_validated(estimator: Any, frame: Any, param: Any, values: list[Any], path: str) -> list[float]:
    """The error of each value of a param, over two folds; the best model is saved and loaded."""
    grid = ParamGridBuilder().addGrid(param, values).build()
    evaluator = RegressionEvaluator(predictionCol="y__output", labelCol="y", metricName="rmse")
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1
    )
    found = validator.fit(frame)
    found.save(path)
    assert evaluator.evaluate(CrossValidatorModel.load(path).transform(frame)) < 0.1
    return list(found.avgMetrics)
