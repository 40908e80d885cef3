"""What the estimators of all frameworks have in common, and their models."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.ml import Estimator, Model

from . import dataset as data
from .backend import SparkBackend
from .params import ESTIMATOR, MODEL, HasParams, with_params
from .saving import NOT_SAVED, Saved, pickled
from .training import Plan, Training, train
from .transform import Output, Predict, add_outputs

_POSITIVE = (
    "num_proc",
    "batch_size",
    "val_batch_size",
    "epochs",
    "train_steps_per_epoch",
    "validation_steps_per_epoch",
    "backward_passes_per_step",
    "partitions_per_process",
)
_FOR_EACH = {
    "input_shapes": "feature_cols",
    "input_dtypes": "feature_cols",
    "label_shapes": "label_cols",
    "loss_weights": "label_cols",
}


@with_params(*ESTIMATOR)
class HorovodEstimator(Estimator, HasParams, Saved):
    """Trains a model with the rows of a DataFrame, on the executors of the application."""

    _framework: str
    _model_class: type[HorovodModel]
    _training: type[Training]
    """What each rank runs; ``_trained`` takes what it returns on rank 0."""

    def fit(self, df: Any, params: Any = None) -> Any:
        """Trains the model.

        The columns are written to the store as Parquet, which the ranks read, and are removed afterwards.

        Args:
            df: a DataFrame with the feature and label columns.
            params: values by Param for this call, or a list of them for a list of models.

        Returns:
            The trained model, a Transformer.

        Raises:
            ValueError: params are missing, or exclude each other.
            Exception: what the function raised on the rank that failed first. Its ``__cause__`` has the
                traceback of that rank.
        """
        return super().fit(df, params)

    def fit_on_parquet(self, params: Any = None, dataset_idx: int | None = None) -> Any:
        """Trains with the Parquet data at ``store.get_train_data_path(dataset_idx)``, and validates with
        those at ``store.get_val_data_path(dataset_idx)`` if ``validation`` is set.

        Args:
            params: values by Param for this call.
            dataset_idx: which data of the store.

        Returns:
            The trained model.

        Raises:
            Exception: see ``fit``.
        """
        if params:
            return self.copy(params).fit_on_parquet(None, dataset_idx)
        backend, values = self._ready()
        dataset = data.described(self.getStore(), self._columns(), dataset_idx)
        if self.getValidation() and dataset.val_path is None:
            path = self.getStore().get_val_data_path(dataset_idx)
            raise ValueError(f"validation={self.getValidation()!r} is set, but there are no data at {path}")
        return self._fit_on(backend, dataset, values)

    def _fit(self, df: Any) -> Any:
        backend, values = self._ready()
        store = self.getStore()
        dataset = data.write(
            df,
            store,
            self._columns(),
            validation=self.getValidation(),
            partitions=backend.num_processes() * self.getPartitionsPerProcess(),
            seed=self.getRandomSeed() or 0,
        )
        try:
            if self.getValidation() and not dataset.val_rows:
                text = f"validation={self.getValidation()!r} leaves no rows to validate with: none is done"
                warnings.warn(text, stacklevel=4)  # of who calls fit
            return self._fit_on(backend, dataset, values)
        finally:
            data.remove(store, dataset)

    def _ready(self) -> tuple[Any, bytes]:
        """The backend, and the params for the ranks. Whatever is wrong with them is told before data are
        written, which may take long.
        """
        backend = self._get_or_create_backend()
        self._check()
        return backend, pickled(self._packed(self._plan_values()))

    def _fit_on(self, backend: Any, dataset: data.Dataset, values: bytes) -> Any:
        run_id = self.getRunId() or f"{self._framework}_{int(time.time())}_{uuid.uuid4().hex[:8]}"
        plan = Plan(dataset, self.getStore(), run_id, values, self._checkpoint(run_id))
        found = backend.run(train, args=(self._training, plan), kwargs={}, env=self._env())[0]
        return self._trained(found, plan)

    def _plan_values(self) -> dict[str, Any]:
        """The params that ranks are told."""
        return {name: self.getOrDefault(name) for name in self._rows if name not in NOT_SAVED}

    def get_model_class(self) -> type:
        """The class of what ``fit`` returns."""
        return self._model_class

    def _metadata_of(self, plan: Plan, shapes: list[list[int]]) -> dict[str, Any]:
        names = [*self.getFeatureCols(), *self.getLabelCols()]
        return {"columns": {name: plan.dataset.columns[name] for name in names}, "shapes": shapes}

    def _model_values(self, model: Any, history: Any, run_id: str, metadata: Any) -> dict[str, Any]:
        """The params of the model, whatever the framework."""
        return {
            "history": history,
            "model": model,
            "feature_columns": self.getFeatureCols(),
            "label_columns": self.getLabelCols(),
            "run_id": run_id,
            "_metadata": metadata,
        }

    def _trained(self, found: Any, plan: Plan) -> Any:
        """The model, from what rank 0 has returned."""
        raise NotImplementedError

    def _env(self) -> dict[str, str]:
        """For the ranks."""
        return {}

    def _columns(self) -> list[str]:
        weight = [self.getSampleWeightCol()] if self.getSampleWeightCol() else []
        return [*self.getFeatureCols(), *self.getLabelCols(), *weight]

    def _check(self) -> None:
        missing = [name for name in self._needed() if not self.getOrDefault(name)]
        if missing:
            raise ValueError(f"{type(self).__name__}: {', '.join(missing)} must be set before fit")
        if not hasattr(self.getStore(), "get_train_data_path"):
            raise TypeError(f"store={self.getStore()!r} is no store: Store.create(path) makes one")
        for name in _POSITIVE:
            value = self.getOrDefault(name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: it must be at least 1")
        for name, columns in _FOR_EACH.items():
            values = self.getOrDefault(name) if self.hasParam(name) else None
            if values and len(values) != len(self.getOrDefault(columns)):
                raise ValueError(
                    f"{name}={values} are not one for each of {columns}={self.getOrDefault(columns)}"
                )

    def _needed(self) -> list[str]:
        return ["model", "store", "feature_cols", "label_cols"]

    def _get_or_create_backend(self) -> Any:
        backend = self.getBackend()
        if backend is None:
            return SparkBackend(self.getNumProc())
        if self.getNumProc() is not None:
            raise ValueError(
                "num_proc and backend exclude each other: the backend says how many ranks there are"
            )
        return backend

    def _checkpoint(self, run_id: str) -> bytes | None:
        store = self.getStore()
        path = store.get_checkpoint_path(run_id)
        return bytes(store.read(path)) if path is not None and store.exists(path) else None


@with_params(*MODEL)
class HorovodModel(Model, HasParams, Saved):
    """A trained model, which adds its outputs to the rows of a DataFrame."""

    def transform(self, df: Any, params: Any = None) -> Any:
        """Adds a column for each output of the model: ``<label>__output``, or those of ``setOutputCols``.

        It has the type of the label, integers being rounded; several numbers for one label are a vector.

        Args:
            df: a DataFrame with the feature columns.
            params: values by Param for this call.

        Returns:
            The DataFrame with these columns, computed when its rows are asked for.
        """
        return super().transform(df, params)

    def getOutputCols(self) -> list[str]:
        """Returns the columns that transform adds."""
        labels = self.getLabelColumns() or ()
        return self.getOrDefault("outputCols") or [f"{label}__output" for label in labels]

    def setLabelColoumns(self, value: Sequence[str]) -> Any:
        """Deprecated: a misspelt name of ``setLabelColumns``."""
        return self.setLabelColumns(value)

    def _transform(self, df: Any) -> Any:
        features = [self._described()["columns"][name] for name in self.getFeatureColumns()]
        if missing := [column.name for column in features if column.name not in df.columns]:
            raise ValueError(f"the DataFrame has no column {missing[0]!r}, but {', '.join(df.columns)}")
        return add_outputs(df, features, self._outputs(), self._predictor())

    def _predictor(self) -> Callable[[], Predict]:
        """Makes the function that predicts; it is called in each task."""
        raise NotImplementedError

    def _outputs(self) -> list[Output]:
        described = self._described()
        names, labels = self.getOutputCols(), self.getLabelColumns()
        if len(names) != len(labels):
            raise ValueError(f"outputCols={names} are not one for each label of {labels}")
        triples = zip(names, labels, described["shapes"], strict=True)
        return [Output(name, described["columns"][label], tuple(shape)) for name, label, shape in triples]

    def _described(self) -> Mapping[str, Any]:
        """The columns, as they were in the training, and the shapes of the outputs for a row."""
        described: Mapping[str, Any] | None = self.getOrDefault("_metadata")
        if not described:
            raise ValueError(
                f"{type(self).__name__}: _metadata is not set: take that of a model that fit returns"
            )
        return described
