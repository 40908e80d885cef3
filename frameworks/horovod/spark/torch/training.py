"""What each rank of a TorchEstimator runs."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch

import horovod.torch as hvd
from horovod.spark.common import training as common
from horovod.spark.common.arrow import Batch
from horovod.spark.common.training import as_list

Prepared = tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]


class Training(common.Training):
    """The training of one rank."""

    def prepare(self) -> None:
        """With the optimizer as the user has made it, until ``fit``."""
        params = self.params
        if params["random_seed"] is not None:
            torch.manual_seed(params["random_seed"] + hvd.rank())
        self.device = device_of(params)
        self.model: Any = params["model"].to(self.device)
        self.dtype = dtype_of(self.model)
        self.optimizer = on_parameters(params["optimizer"], self.model)
        self.shapes: list[list[int]] = []

    def resume(self, checkpoint: bytes) -> None:
        state = torch.load(io.BytesIO(checkpoint), map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history, self.done = state["history"], state["done"]

    def fit(self, epochs: range) -> None:
        self.loss = Losses(self.params, self.model, self.optimizer)
        self.optimizer = self._distributed(self.optimizer)
        for epoch in epochs:
            entry: dict[str, Any] = {"epoch": epoch, "train": self._train(epoch)}
            if self.share.val_steps:
                entry["validation"] = self._validate()
            self.history.append(entry)
            self.end_epoch(epoch, entry["train"]["loss"])
            if hvd.rank() == 0:
                self._tell(entry)

    def checkpoint(self) -> bytes:
        """The learning rate in it is that of one rank."""
        optimizer = plain(copy.deepcopy(self.optimizer.state_dict()))
        for group in optimizer["param_groups"]:
            group["lr"] /= hvd.size()
        return saved(
            model=self.model.state_dict(),
            optimizer=optimizer,
            history=self.history,
            done=self.done,
            shapes=self.shapes,
        )

    def _train(self, epoch: int) -> dict[str, Any]:
        self.model.train()
        means = Means(self.params)
        passes, count = self.params["backward_passes_per_step"], self.share.steps
        step = self.params["train_minibatch_fn"]
        for number, batch in enumerate(self.share.train(epoch), 1):
            inputs, labels, weights = self._prepared(batch)
            if step is not None:
                arguments = (self.model, self.optimizer, fitted, self.loss, inputs, labels, weights)
                outputs, loss = step(*arguments)
                outputs, labels = fitted(outputs, labels)
            else:
                outputs, labels = fitted(self.model(*inputs), labels)
                loss = self.loss(outputs, labels, weights)
                loss.backward()
                if number % passes == 0 or number == count:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            means.add(loss, outputs, labels)
            self.shapes = shapes_of(outputs)
        return means.of_all_ranks()

    def _validate(self) -> dict[str, Any]:
        self.model.eval()
        means = Means(self.params)
        with torch.no_grad():
            for batch in self.share.validate():
                inputs, labels, weights = self._prepared(batch)
                outputs, labels = fitted(self.model(*inputs), labels)
                means.add(self.loss(outputs, labels, weights), outputs, labels)
        return means.of_all_ranks()

    def _prepared(self, batch: Batch) -> Prepared:
        inputs, labels, weights = prepared(self, batch)
        inputs, labels = ([tensor.to(self.device) for tensor in each] for each in (inputs, labels))
        return inputs, labels, None if weights is None else weights.to(self.device)

    def _distributed(self, optimizer: Any) -> Any:
        for group in optimizer.param_groups:
            group["lr"] *= hvd.size()
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        compression = self.params["gradient_compression"] or hvd.Compression.none
        passes = self.params["backward_passes_per_step"]
        return hvd.DistributedOptimizer(
            optimizer, self.model.named_parameters(), compression=compression, backward_passes_per_step=passes
        )

    def _tell(self, entry: Mapping[str, Any]) -> None:
        if self.params["verbose"]:
            print(entry, flush=True)
        for callback in self.params["callbacks"] or ():
            callback(entry)


def prepared(training: Any, batch: Batch) -> Prepared:
    """Inputs, labels, and weights of rows, as the model of a training with a ``dtype`` takes them."""
    params, dtype = training.params, training.dtype
    inputs, labels = (training.arrays(batch, names) for names in ("feature_cols", "label_cols"))
    # Integers may be classes; all else is of the dtype of the model.
    of_labels = [torch.int64 if array.dtype.kind in "iu" else dtype for array in labels]
    weights = training.weights(batch)
    return (
        tensors(inputs, params["input_shapes"], params["input_dtypes"] or dtype),
        tensors(labels, params["label_shapes"], of_labels),
        None if weights is None else tensors([weights], None, dtype)[0],
    )


def plain(value: Any) -> Any:
    """With numbers of Python in place of NumPy's, such as a learning rate of ``np.logspace``, which
    ``torch.load`` takes for code.
    """
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return value.item() if isinstance(value, np.generic) else value


def saved(**state: Any) -> bytes:
    """What ``torch.save`` makes of it."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def shapes_of(outputs: Sequence[torch.Tensor]) -> list[list[int]]:
    """Of one row of each."""
    return [list(output.shape[1:]) for output in outputs]


class Losses:
    """The sum of the losses of all outputs, with their weights."""

    def __init__(self, params: Mapping[str, Any], model: Any, optimizer: Any) -> None:
        made = [make(model=model, optimizer=optimizer) for make in as_list(params["loss_constructors"])]
        functions, count = as_list(params["loss"]) or made, len(params["label_cols"])
        device = next((each.device for each in model.parameters()), None)
        for function in functions:
            if isinstance(function, torch.nn.Module):  # it may have weights of classes
                function.to(device)
        self._functions = functions * count if len(functions) == 1 else functions
        self._shares = params["loss_weights"] or [1 / count] * count

    def __call__(self, outputs: Sequence[Any], labels: Sequence[Any], weights: Any = None) -> Any:
        each = zip(self._functions, outputs, labels, self._shares, strict=True)
        return sum(_loss(function, output, label, weights) * share for function, output, label, share in each)


class Means:
    """The means of loss and metrics over the batches of an epoch, of all ranks."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        labels = params["label_cols"]
        groups = [as_list(group) for group in params["metrics"] or ()]
        self._groups = [group * len(labels) if len(group) == 1 else group for group in groups]
        self._names = [[f"group_{number}_{label}" for label in labels] for number in range(len(groups))]
        self._sums = torch.zeros(1 + sum(map(len, self._names)), dtype=torch.float64)
        self._rows = 0

    def add(self, loss: Any, outputs: Sequence[Any], labels: Sequence[Any]) -> None:
        """The results of a batch."""
        values = [loss]
        for group in self._groups:
            values += [metric(*pair) for metric, *pair in zip(group, outputs, labels, strict=True)]
        rows = len(labels[0])
        self._sums += rows * torch.stack([torch.as_tensor(value).detach().double().cpu() for value in values])
        self._rows += rows

    def of_all_ranks(self) -> dict[str, Any]:
        """For the history."""
        sums = hvd.allreduce(torch.cat([self._sums, torch.tensor([float(self._rows)])]), op=hvd.Sum)
        loss, *values = (sums[:-1] / sums[-1]).tolist()
        left = iter(values)
        return {"loss": loss, "all_metrics": [{name: next(left) for name in names} for names in self._names]}


def fitted(outputs: Any, labels: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The outputs as a list, and the labels with their shapes and types, where the numbers are as many. Those
    of classes, for which a model gives several numbers, stay integers.
    """
    outputs = as_list(outputs)
    if len(outputs) != len(labels):
        raise ValueError(f"the model gives {len(outputs)} outputs for {len(labels)} labels")
    pairs = zip(outputs, labels, strict=True)
    return outputs, [
        label.reshape(output.shape).to(output.dtype) if output.numel() == label.numel() else label
        for output, label in pairs
    ]


def _loss(function: Any, output: Any, label: Any, weights: Any) -> Any:
    if weights is None:
        return function(output, label)
    if isinstance(function, torch.nn.Module):
        function = copy.copy(function)
        function.reduction = "none"
        losses = function(output, label)
    else:
        losses = function(output, label, reduction="none")
    return (losses.reshape(len(weights), -1).mean(1) * weights.reshape(-1)).mean()


def on_parameters(optimizer: Any, model: torch.nn.Module) -> Any:
    """The optimizer, of the parameters of this model: where it was made for others, they are replaced in
    their order.
    """
    own = list(model.parameters())
    given = [each for group in optimizer.param_groups for each in group["params"]]
    if {id(each) for each in given} <= {id(each) for each in own}:
        if own and own[0].device.type != "cpu":
            optimizer.load_state_dict(optimizer.state_dict())  # brings its state to the device
        return optimizer
    if [each.shape for each in given] != [each.shape for each in own]:
        raise ValueError(
            "the optimizer was made for other parameters than those of the model: make it from "
            "model.parameters(), of the model that you give to the estimator"
        )
    state, left = optimizer.state_dict(), iter(own)
    for group in optimizer.param_groups:
        group["params"] = [next(left) for _ in group["params"]]
    optimizer.state.clear()
    optimizer.load_state_dict(state)
    return optimizer


def tensors(
    arrays: Sequence[np.ndarray],
    shapes: Sequence[Any] | None,
    dtypes: torch.dtype | Sequence[torch.dtype | str],
) -> list[torch.Tensor]:
    """Columns, each of shape (rows, ...), as a model takes them: of one dtype, or each of its own."""
    each_dtype = repeat(dtypes, len(arrays)) if isinstance(dtypes, torch.dtype) else dtypes
    each_shape = shapes or repeat(None, len(arrays))
    found = []
    for array, shape, dtype in zip(arrays, each_shape, each_dtype, strict=True):
        if array.dtype == object:
            raise TypeError("a column holds no numbers: decode it before, or have get_prediction_fn do it")
        wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy()).to(wanted)
        made = tensor if shape is None else tensor.reshape(shape)
        if len(made) != len(array):
            raise ValueError(
                f"the shape {shape} makes {len(made)} rows of {len(array)} of shape {array.shape[1:]}: it "
                "begins with -1, for the rows, and has as many numbers as a row"
            )
        found.append(made)
    return found


def dtype_of(model: torch.nn.Module) -> torch.dtype:
    """That of its parameters."""
    found = (each.dtype for each in model.parameters() if each.dtype.is_floating_point)
    return next(found, torch.float32)


def device_of(params: Mapping[str, Any]) -> torch.device:
    """A GPU for each rank of a machine, where there are any."""
    if params["use_gpu"] and torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
