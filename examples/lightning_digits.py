"""Lightning over horovod: a strategy by name. Lightning starts the second process itself.

python examples/lightning_digits.py
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch.distributed.lightning  # noqa: F401  (makes the strategy "hvd" known)


class Digits(lightning.LightningModule):
    """A classifier of 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2)


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    trainer = lightning.Trainer(
        strategy="hvd",
        accelerator="cpu",
        devices=2,
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Digits(), DataLoader(data, batch_size=32, shuffle=True))
    if trainer.is_global_zero:
        print(f"loss {trainer.callback_metrics['loss_epoch']:.3f} of {trainer.world_size} processes")
