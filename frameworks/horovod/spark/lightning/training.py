"""What each rank of Lightning's TorchEstimator runs."""

from __future__ import annotations

import importlib
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Any

import torch

import horovod.torch as hvd
from horovod.spark.common import training as common
from horovod.spark.common.arrow import Batch
from horovod.spark.common.training import as_list
from horovod.spark.torch.training import (
    Losses,
    device_of,
    dtype_of,
    fitted,
    on_parameters,
    prepared,
    saved,
    shapes_of,
)
from horovod.torch.distributed import register

PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_ENVIRONMENTS = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}


def package_of(model: Any) -> str | None:
    """The package whose LightningModule it is; None of a plain module."""
    found = {
        cls.__module__.partition(".")[0] for cls in type(model).__mro__ if cls.__name__ == "LightningModule"
    }
    return next((PACKAGES[name] for name in PACKAGES if name in found), None)


class Training(common.Training):
    """The training of one rank."""

    def prepare(self) -> None:
        params = self.params
        self.pl = pl = importlib.import_module(package_of(params["model"]) or "lightning.pytorch")
        if params["random_seed"] is not None:
            pl.seed_everything(params["random_seed"] + hvd.rank(), verbose=False)
        self.model = params["model"]
        self.dtype = dtype_of(self.model)
        self.module = self.model if package_of(self.model) else of_plain(pl, params)
        kinds = (each for each in params["callbacks"] or () if isinstance(each, pl.callbacks.ModelCheckpoint))
        self.best = next(kinds, None)
        self.kept_at = os.path.join(self.folder, "kept.ckpt")
        self.resumed_from: str | None = None

    def resume(self, checkpoint: bytes) -> None:
        """Lightning reads the file."""
        self.resumed_from = path = os.path.join(self.folder, "resumed.ckpt")
        with open(path, "wb") as file:
            file.write(checkpoint)
        self.done = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=False)["epoch"] + 1

    def fit(self, epochs: range) -> None:
        share = self.share
        trainer = self.pl.Trainer(**{**self._arguments(epochs.stop), **(self.params["trainer_args"] or {})})
        loaders = {
            "train_dataloaders": Loader(
                lambda number: share.train(epochs.start + number), share.steps, self._tensors
            )
        }
        if share.val_steps:
            loaders["val_dataloaders"] = Loader(lambda _: share.validate(), share.val_steps, self._tensors)
        # Hyperparameters in a checkpoint may be of any class: Lightning is to read it as ``resume`` has, and
        # its older versions do so.
        options = {"weights_only": False} if "weights_only" in signature(trainer.fit).parameters else {}
        trainer.fit(self.module, **loaders, ckpt_path=self.resumed_from, **options)

    def checkpoint(self) -> bytes:
        with open(self.kept_at, "rb") as file:
            return file.read()

    def result(self) -> bytes:
        """The weights that the user's ModelCheckpoint has chosen, or the last ones."""
        if self.best is not None and self.best.best_model_path:
            kept = torch.load(self.best.best_model_path, map_location="cpu", weights_only=False)
            self.module.load_state_dict(kept["state_dict"])
        model = self.model.cpu().eval()
        inputs, *_ = prepared(self, next(self.share.train(0)))
        with torch.no_grad():
            outputs = as_list(model(*inputs))
        return saved(model=model.state_dict(), history=self.history, shapes=shapes_of(outputs))

    def _arguments(self, epochs: int) -> dict[str, Any]:
        """Of ``lightning.Trainer``."""
        params, pl = self.params, self.pl
        if self.best is not None:
            self.best.dirpath = self.folder
        found = {
            "accelerator": "gpu" if device_of(params).type == "cuda" else "cpu",
            "devices": hvd.local_size(),
            "num_nodes": hvd.cross_size(),
            "max_epochs": epochs,
            "callbacks": [*(params["callbacks"] or ()), keeper(self)],
            "logger": params["logger"] or False,
            "log_every_n_steps": params["log_every_n_steps"],
            "profiler": params["profiler"],
            "accumulate_grad_batches": params["backward_passes_per_step"],
            "num_sanity_val_steps": 0,
            "enable_checkpointing": self.best is not None,
            "enable_progress_bar": params["verbose"] > 1,
            "enable_model_summary": params["verbose"] > 1,
            "use_distributed_sampler": False,
            "default_root_dir": self.folder,
        }
        if hvd.size() == 1:
            return found
        register()
        strategy = pl.strategies.DDPStrategy(
            cluster_environment=environment(pl),
            process_group_backend="hvd",
            ddp_comm_hook=_hook(params["gradient_compression"]),
        )
        return {**found, "strategy": strategy}

    def _tensors(self, batch: Batch) -> dict[str, torch.Tensor]:
        """By the names of columns."""
        params = self.params
        inputs, labels, weights = prepared(self, batch)
        found = dict(zip(params["feature_cols"], inputs, strict=True))
        found |= zip(params["label_cols"], labels, strict=True)
        return found if weights is None else {**found, params["sample_weight_col"]: weights}


class Loader:
    """The batches of an epoch, as Lightning takes them."""

    def __init__(
        self,
        read: Callable[[int], Iterator[Batch]],
        steps: int,
        convert: Callable[[Batch], dict[str, torch.Tensor]],
    ) -> None:
        self._read, self._steps, self._convert = read, steps, convert
        self._epochs = 0

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self._epochs += 1
        return map(self._convert, self._read(self._epochs - 1))


def of_plain(pl: Any, params: Mapping[str, Any]) -> Any:
    """A module that is none of Lightning as one, with its optimizer and losses."""
    features, labels, weight = params["feature_cols"], params["label_cols"], params["sample_weight_col"]
    model, optimizer = params["model"], params["optimizer"]

    class Plain(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.losses = Losses(params, model, optimizer)

        def training_step(self, batch: Mapping[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.measured("loss", batch)

        def validation_step(self, batch: Mapping[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.measured("val_loss", batch)

        def measured(self, name: str, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
            outputs, wanted = fitted(
                self.model(*map(batch.get, features)), [batch[label] for label in labels]
            )
            loss: torch.Tensor = self.losses(outputs, wanted, batch[weight] if weight else None)
            self.log(name, loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(wanted[0]))
            return loss

        def configure_optimizers(self) -> Any:
            return on_parameters(optimizer, self.model)

    return Plain()


def keeper(training: Training) -> Any:
    """A callback that keeps the history, and a checkpoint of each epoch."""
    base: Any = training.pl.Callback

    class Keeper(base):
        size = 1  # of the job that the learning rates are for
        loss = 0.0  # of the last batch

        def on_train_start(self, trainer: Any, module: Any) -> None:
            factor, self.size = hvd.size() / self.size, hvd.size()
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= factor
            for config in trainer.lr_scheduler_configs:
                if hasattr(config.scheduler, "base_lrs"):
                    config.scheduler.base_lrs = [rate * factor for rate in config.scheduler.base_lrs]

        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int
        ) -> None:
            self.loss = float((outputs or {}).get("loss", 0.0))  # of a batch that is skipped there is none
            if training.params["terminate_on_nan"] and not math.isfinite(self.loss):
                raise ValueError(f"the loss of batch {number} is not finite (terminate_on_nan)")

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            training.history.append({"epoch": trainer.current_epoch, **metrics})
            trainer.save_checkpoint(training.kept_at)
            training.end_epoch(trainer.current_epoch, self.loss)

        def state_dict(self) -> dict[str, Any]:
            return {"history": training.history, "size": self.size}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            training.history, self.size = state["history"], state["size"]

    return Keeper()


def environment(pl: Any) -> Any:
    """Who a rank is, for Lightning: that which it is in the job."""

    base: Any = importlib.import_module(
        f"{_ENVIRONMENTS[pl.__name__]}.plugins.environments"
    ).ClusterEnvironment

    class Environment(base):
        creates_processes_externally = True
        main_address = property(lambda _: os.environ["MASTER_ADDR"])
        main_port = property(lambda _: int(os.environ["MASTER_PORT"]))
        detect = staticmethod(lambda: True)

        def world_size(self) -> int:
            return int(hvd.size())

        def global_rank(self) -> int:
            return int(hvd.rank())

        def local_rank(self) -> int:
            return int(hvd.local_rank())

        def node_rank(self) -> int:
            return int(hvd.cross_rank())

        def set_world_size(self, size: int) -> None:
            """It is that of the job."""

        def set_global_rank(self, rank: int) -> None:
            """Likewise."""

        def validate_settings(self, num_devices: int, num_nodes: int) -> None:
            """Hosts may have different numbers of ranks."""

    return Environment()


def _hook(compression: Any) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    hooks = {
        None: None,
        hvd.Compression.none: None,
        hvd.Compression.fp16: default_hooks.fp16_compress_hook,
        hvd.Compression.bf16: default_hooks.bf16_compress_hook,
    }
    if compression not in hooks:
        raise ValueError(f"gradient_compression={compression}: Lightning's is none, fp16 or bf16")
    return hooks[compression]
