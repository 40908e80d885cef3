"""What each rank of Lightning's TorchEstimator runs."""

from __future__ import annotations

import importlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import horovod.torch as hvd
from horovod.spark.common.training import Batch, Plan, Share, numeric
from horovod.spark.torch.training import (
    Losses,
    as_list,
    device_of,
    dtype_of,
    fitted,
    label_dtypes,
    on_parameters,
    tensors,
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


def train(plan: Plan) -> bytes | None:
    """Trains, and returns weights and history on rank 0."""
    hvd.init()
    params = plan.params()
    pl = importlib.import_module(package_of(params["model"]) or "lightning.pytorch")
    if params["random_seed"] is not None:
        pl.seed_everything(params["random_seed"] + hvd.rank(), verbose=False)
    share = Share(plan, params, hvd.rank(), hvd.size())
    with tempfile.TemporaryDirectory() as folder:
        return Training(pl, plan, params, share, folder).run()


class Training:
    """The training of one rank. ``folder`` is empty, and removed afterwards."""

    def __init__(self, pl: Any, plan: Plan, params: Mapping[str, Any], share: Share, folder: str) -> None:
        self._pl, self._plan, self._params, self._share, self._folder = pl, plan, params, share, folder
        self._model = params["model"]
        self._dtype = dtype_of(self._model)
        self._module = self._model if package_of(self._model) else of_plain(pl, params)
        self._keeper = keeper(pl, share, params["terminate_on_nan"], os.path.join(folder, "kept.ckpt"))
        self._callbacks = [*(params["callbacks"] or ())]
        self._best = next(
            (each for each in self._callbacks if isinstance(each, pl.callbacks.ModelCheckpoint)), None
        )

    def run(self) -> bytes | None:
        """Trains the epochs that are left."""
        done, path = 0, None
        if self._plan.checkpoint is not None:
            path = os.path.join(self._folder, "resumed.ckpt")
            with open(path, "wb") as file:
                file.write(self._plan.checkpoint)
            done = torch.load(path, map_location="cpu", weights_only=False)["epoch"] + 1
        epochs = self._share.epochs(done)
        trainer = self._pl.Trainer(**{**self._arguments(epochs.stop), **(self._params["trainer_args"] or {})})
        sets = {"train": lambda number: self._share.train(epochs.start + number)}
        if self._share.val_steps:
            sets["val"] = lambda _: self._share.validate()
        steps = {"train": self._share.steps, "val": self._share.val_steps}
        loaders = {
            f"{name}_dataloaders": Loader(read, steps[name], self._tensors) for name, read in sets.items()
        }
        trainer.fit(self._module, **loaders, ckpt_path=path)
        return self._found() if hvd.rank() == 0 else None

    def _arguments(self, epochs: int) -> dict[str, Any]:
        """Of ``lightning.Trainer``."""
        params, pl = self._params, self._pl
        if self._best is not None:
            self._best.dirpath = self._folder
        found = {
            "accelerator": "gpu" if device_of(params).type == "cuda" else "cpu",
            "devices": hvd.local_size(),
            "num_nodes": hvd.cross_size(),
            "max_epochs": epochs,
            "callbacks": [*self._callbacks, self._keeper],
            "logger": params["logger"] or False,
            "log_every_n_steps": params["log_every_n_steps"],
            "profiler": params["profiler"],
            "accumulate_grad_batches": params["backward_passes_per_step"],
            "num_sanity_val_steps": 0,
            "enable_checkpointing": self._best is not None,
            "enable_progress_bar": params["verbose"] > 1,
            "enable_model_summary": params["verbose"] > 1,
            "use_distributed_sampler": False,
            "default_root_dir": self._folder,
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
        params = self._params
        found: dict[str, torch.Tensor] = {}
        of_labels = label_dtypes(batch, params, self._dtype)
        for names, shapes, dtypes in (
            ("feature_cols", "input_shapes", params["input_dtypes"]),
            ("label_cols", "label_shapes", of_labels),
        ):
            columns = [numeric(batch, name) for name in params[names]]
            made = tensors(columns, params[shapes], dtypes or self._dtype)
            found.update(zip(params[names], made, strict=True))
        weight = params["sample_weight_col"]
        return {**found, weight: tensors([numeric(batch, weight)], None, self._dtype)[0]} if weight else found

    def _found(self) -> bytes:
        """What the driver gets."""
        if self._best is not None and self._best.best_model_path:
            kept = torch.load(self._best.best_model_path, map_location="cpu", weights_only=False)
            self._module.load_state_dict(kept["state_dict"])
        model = self._model.cpu().eval()
        batch = self._tensors(next(self._share.train(0)))
        with torch.no_grad():
            outputs = as_list(model(*(batch[name] for name in self._params["feature_cols"])))
        shapes = [list(output.shape[1:]) for output in outputs]
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "history": self._keeper.history, "shapes": shapes}, file)
        return file.getvalue()


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


def keeper(pl: Any, share: Share, ends_on_nan: bool, path: str) -> Any:
    """A callback that keeps the history, and a checkpoint of each epoch."""

    class Keeper(pl.Callback):
        def __init__(self) -> None:
            self.history: list[dict[str, float]] = []
            self.size = 1  # of the job that the learning rates are for

        def on_train_start(self, trainer: Any, module: Any) -> None:
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= hvd.size() / self.size
            for config in trainer.lr_scheduler_configs:
                if hasattr(config.scheduler, "base_lrs"):
                    config.scheduler.base_lrs = [
                        rate * hvd.size() / self.size for rate in config.scheduler.base_lrs
                    ]
            self.size = hvd.size()

        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int
        ) -> None:
            if ends_on_nan and outputs is not None and not torch.isfinite(outputs["loss"]).all():
                raise ValueError(f"the loss of batch {number} is not finite (terminate_on_nan)")

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.history.append({"epoch": trainer.current_epoch, **metrics})
            trainer.save_checkpoint(path)
            if hvd.rank() == 0:
                with open(path, "rb") as file:
                    share.save(file.read())

        def state_dict(self) -> dict[str, Any]:
            return {"history": self.history, "size": self.size}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.history, self.size = state["history"], state["size"]

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
