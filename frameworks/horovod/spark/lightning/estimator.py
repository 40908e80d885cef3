"""The estimator for Lightning and its model."""

from __future__ import annotations

from horovod.spark.common.params import Row, with_params
from horovod.spark.torch import estimator as plain

from .training import Training, package_of


class TorchModel(plain.TorchModel):
    """A trained LightningModule, which ``getModel`` returns, as a Transformer.

    Args:
        **values: params by name; ``explainParams()`` describes them all.
    """


@with_params(
    Row(
        "num_gpus",
        "accepted, and not used: a rank has one, where use_gpu is set and there are any",
        accessor="NumGPUs",
    ),
    Row("logger", "of Lightning"),
    Row("log_every_n_steps", "how often it is given values", 50, int),
    Row("loader_num_epochs", "accepted, and not used"),
    Row("terminate_on_nan", "whether a loss that is not finite ends the training", False, bool),
    Row("profiler", "of Lightning"),
    Row("trainer_args", "further arguments of lightning.Trainer, which go before those of the estimator"),
    Row("debug_data_loader", "accepted, and not used", False),
    Row("train_async_data_loader_queue_size", "accepted, and not used"),
    Row("val_async_data_loader_queue_size", "accepted, and not used"),
)
class TorchEstimator(plain.TorchEstimator):
    """Trains a LightningModule with the rows of a DataFrame.

    Example::

        estimator = TorchEstimator(num_proc=2, store=store, model=module, feature_cols=["x"],
                                   label_cols=["y"], batch_size=64, epochs=5)
        predictions = estimator.fit(frame).transform(frame)

    ``training_step`` and ``validation_step`` get a batch as a dictionary of tensors by column. ``forward``
    takes a tensor for each feature column; ``transform`` calls it. A plain ``torch.nn.Module`` is trained
    with ``optimizer`` and ``loss``, as by ``horovod.spark.torch.TorchEstimator``. The learning rate is
    multiplied by the number of ranks.

    Args:
        **values: params by name; ``explainParams()`` describes them all. ``callbacks`` are those of
            Lightning; a ModelCheckpoint among them chooses which weights the model gets at the end.
    """

    _framework = "lightning"
    _model_class = TorchModel
    _training = Training

    def _needed(self) -> list[str]:
        needed = super()._needed()
        return needed if self._is_plain() else [name for name in needed if name != "optimizer"]

    def _check(self) -> None:
        if self._is_plain():
            return super()._check()
        super(plain.TorchEstimator, self)._check()
        for name in ("optimizer", "loss", "loss_constructors", "loss_weights", "train_minibatch_fn"):
            if self.getOrDefault(name):
                raise ValueError(
                    f"{name} is that of the LightningModule: configure_optimizers or training_step"
                )

    def _is_plain(self) -> bool:
        return self.getModel() is not None and package_of(self.getModel()) is None
