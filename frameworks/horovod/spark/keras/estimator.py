"""The estimator for Keras and its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import Row, with_params
from horovod.spark.common.training import Plan, as_list
from horovod.spark.common.transform import Predict

from .packing import archive, backend_of, model_of, package_of, packed, unpacked
from .training import Training, as_input, choose_gpu, compiled, load_arrays

_CUSTOM_OBJECTS = Row("custom_objects", "what Keras does not know of the model, by name", {})


@with_params(_CUSTOM_OBJECTS)
class KerasModel(HorovodModel):
    """A trained model of Keras, which ``keras()`` returns, as a Transformer.

    Args:
        **values: params by name; ``explainParams()`` describes them all.
    """

    def keras(self) -> Any:
        """The model of Keras, compiled with the optimizer of the training."""
        return self.getModel()

    _packed, _unpacked = staticmethod(packed), staticmethod(unpacked)

    def _predictor(self) -> Callable[[], Predict]:
        pickled = cloudpickle.dumps((archive(self.getModel()), self.getCustomObjects()))

        def load() -> Predict:
            archived, custom_objects = cloudpickle.loads(pickled)
            choose_gpu(archived.package, None)  # which the tasks of a machine could not share
            model = model_of(archived, custom_objects)

            def predict(features: list[np.ndarray]) -> list[np.ndarray]:
                outputs = model.predict_on_batch(as_input(model, features))
                return [np.asarray(output) for output in as_list(outputs)]

            return predict

        return load


@with_params(
    _CUSTOM_OBJECTS,
    Row("checkpoint_callback", "a ModelCheckpoint, whose best weights the model gets at the end"),
    Row("backend_env", "variables for the ranks", {}),
)
class KerasEstimator(HorovodEstimator):
    """Trains a model of Keras 3 or tf_keras with the rows of a DataFrame.

    Example::

        estimator = KerasEstimator(num_proc=2, store=store, model=model, loss="mse",
                                   optimizer=keras.optimizers.Adam(0.01), feature_cols=["x"],
                                   label_cols=["y"], batch_size=64, epochs=5)
        predictions = estimator.fit(frame).transform(frame)

    The model takes an array for each feature column, and gives one for each label; columns get the shapes
    that it has for them. The learning rate is multiplied by the number of ranks.

    Args:
        **values: params by name; ``explainParams()`` describes them all. Optimizer, loss and metrics are what
            ``compile`` takes; those that are not given are what the model was compiled with.
    """

    _framework = "keras"
    _model_class = KerasModel
    _training = Training

    def _check(self) -> None:
        super()._check()
        package_of(self.getModel())
        model = self.getModel()
        for name in ("optimizer", "loss"):
            if not self.getOrDefault(name) and not getattr(model, name, None):
                raise ValueError(f"KerasEstimator: {name} must be set, or the model compiled")

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        """With what the model was compiled with, for all that is not given."""
        model = values.get("model")
        known = {name: getattr(model, name, None) for name in ("optimizer", "loss")}
        compiled = getattr(model, "_compile_config", None)  # the metrics of the model itself are made of it
        known |= {name: compiled and compiled.config.get(name) for name in ("loss_weights", "metrics")}
        known = {name: value for name, value in known.items() if value and not self.getOrDefault(name)}
        return packed({**values, **known})

    _unpacked = staticmethod(unpacked)

    def _env(self) -> dict[str, str]:
        package = package_of(self.getModel())
        legacy = {"TF_USE_LEGACY_KERAS": "1"} if package == "tf_keras" else {}
        return {"KERAS_BACKEND": backend_of(package), **legacy, **(self.getBackendEnv() or {})}

    def _trained(self, found: Any, plan: Plan) -> Any:
        params = unpacked(plan.params())
        model = compiled(params, params["optimizer"])
        state = load_arrays(found, model)
        metadata = self._metadata_of(plan, state["shapes"])
        return self.get_model_class()(
            **self._get_model_kwargs(model, state["history"], plan.run_id, metadata)
        )

    def _get_model_kwargs(self, model: Any, history: Any, run_id: str, metadata: Any) -> dict[str, Any]:
        values = self._model_values(model, history, run_id, metadata)
        return {**values, "custom_objects": self.getCustomObjects()}
