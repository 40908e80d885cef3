"""The estimator for PyTorch and its model."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import torch

from horovod.spark.common import training as common
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import Row, with_params
from horovod.spark.common.training import as_list
from horovod.spark.common.transform import Predict

from .training import Training, dtype_of, tensors

_INPUT_SHAPES = Row("input_shapes", "the shape of each input, -1 for the rows, where it is not its column's")
_INPUT_DTYPES = Row(
    "input_dtypes", "the dtype of each input, such as 'int64', where it is not the parameters'"
)
_LOSS_CONSTRUCTORS = Row("loss_constructors", "functions that make the losses on the ranks, in place of loss")


def on_cpu(values: dict[str, Any]) -> dict[str, Any]:
    """A copy whose tensors are on the CPU, if the model is elsewhere: its reader may have no GPU."""
    if not _is_elsewhere(values.get("model")):
        return values
    file = io.BytesIO()
    torch.save(values, file, pickle_module=cloudpickle)
    file.seek(0)
    copied: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    return copied


def _is_elsewhere(model: Any) -> bool:
    return model is not None and any(each.device.type != "cpu" for each in model.parameters())


@with_params(
    _INPUT_SHAPES,
    _INPUT_DTYPES,
    _LOSS_CONSTRUCTORS,
    Row("optimizer", "that of the training, with its state"),
    Row("loss", "that of the training"),
)
class TorchModel(HorovodModel):
    """A trained ``torch.nn.Module``, which ``getModel`` returns, as a Transformer.

    Args:
        **values: params by name; ``explainParams()`` describes them all.
    """

    def get_prediction_fn(self) -> Callable[[torch.nn.Module, list[np.ndarray]], Any]:
        """The function of model and features, each of shape (rows, ...), that gives the outputs. A class of
        your own may return another one.
        """
        shapes, dtypes = self.getInputShapes(), self.getInputDtypes()

        def predict(model: torch.nn.Module, features: list[np.ndarray]) -> Any:
            return model(*tensors(features, shapes, dtypes or dtype_of(model)))

        return predict

    _packed = staticmethod(on_cpu)

    def _predictor(self) -> Callable[[], Predict]:
        values = on_cpu({"model": self.getModel(), "function": self.get_prediction_fn()})
        pickled = cloudpickle.dumps(values)

        def load() -> Predict:
            model, function = cloudpickle.loads(pickled).values()
            model.eval()

            def predict(features: list[np.ndarray]) -> list[np.ndarray]:
                with torch.inference_mode():
                    return [output.numpy(force=True) for output in as_list(function(model, features))]

            return predict

        return load


@with_params(
    _INPUT_SHAPES,
    _INPUT_DTYPES,
    _LOSS_CONSTRUCTORS,
    Row("train_minibatch_fn", "makes a step in place of the usual one, and returns outputs and loss"),
)
class TorchEstimator(HorovodEstimator):
    """Trains a ``torch.nn.Module`` with the rows of a DataFrame.

    Example::

        estimator = TorchEstimator(num_proc=2, store=store, model=model, optimizer=optimizer,
                                   loss=torch.nn.functional.mse_loss, feature_cols=["x"], label_cols=["y"],
                                   batch_size=64, epochs=5)
        predictions = estimator.fit(frame).transform(frame)

    The model is called with one tensor for each feature column, of the dtype of its parameters, or those of
    ``input_dtypes``: an Embedding wants "int64". It returns a tensor, or one for each label; a label is given
    the shape and the dtype of its output, if it has as many numbers. Labels of classes stay integers. The
    learning rate is multiplied by the number of ranks.

    Args:
        **values: params by name; ``explainParams()`` describes them all. ``loss`` is a function of output and
            label, which with ``sample_weight_col`` takes ``reduction="none"``, too. ``metrics`` are functions
            likewise, or lists of one for each label. ``callbacks`` are called on rank 0 with the entry of the
            history after each epoch.
    """

    _framework = "pytorch"
    _model_class: type[HorovodModel] = TorchModel
    _training: type[common.Training] = Training

    _packed = staticmethod(on_cpu)

    def _needed(self) -> list[str]:
        return [*super()._needed(), "optimizer"]

    def _check(self) -> None:
        super()._check()
        losses, makers = self.getLoss(), self.getLossConstructors()
        if bool(losses) == bool(makers):
            raise ValueError("exactly one of loss and loss_constructors must be set")
        count, labels = len(as_list(losses or makers)), self.getLabelCols()
        if count not in (1, len(labels)):
            raise ValueError(f"{count} losses are neither one nor one for each label of {labels}")
        metrics = [each for group in self.getMetrics() or () for each in as_list(group)]
        for name, given in (("loss", as_list(losses or makers)), ("metrics", metrics)):
            if wrong := [each for each in given if not callable(each)]:
                raise TypeError(f"{name}={wrong[0]!r} cannot be called: give a function or a module")
        if not isinstance(self.getModel(), torch.nn.Module):
            raise TypeError(f"model={self.getModel()!r} is no torch.nn.Module")
        if not isinstance(self.getOptimizer(), torch.optim.Optimizer):
            raise TypeError(f"optimizer={self.getOptimizer()!r} is no optimizer: make it of the parameters")
        if self.getTrainMinibatchFn() and self.getBackwardPassesPerStep() > 1:
            raise ValueError("train_minibatch_fn makes the steps itself: set no backward_passes_per_step")

    def _trained(self, found: Any, plan: common.Plan) -> Any:
        state = torch.load(io.BytesIO(found), map_location="cpu", weights_only=False)  # of a rank
        params = plan.params()  # a model and an optimizer that are nobody's
        model, optimizer = params["model"], params["optimizer"]
        model.load_state_dict(state["model"])
        model.eval()
        if "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"])
        metadata = self._metadata_of(plan, state["shapes"])
        return self.get_model_class()(
            **self._get_model_kwargs(
                model, state["history"], optimizer if "optimizer" in state else None, plan.run_id, metadata
            )
        )

    def _get_model_kwargs(self, model: Any, history: Any, optimizer: Any, run_id: str, metadata: Any) -> Any:
        return {
            **self._model_values(model, history, run_id, metadata),
            "optimizer": optimizer,
            "input_shapes": self.getInputShapes(),
            "input_dtypes": self.getInputDtypes(),
            "loss": self.getLoss(),
            "loss_constructors": self.getLossConstructors(),
        }
