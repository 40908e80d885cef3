"""Lightning, accelerate, Keras on torch and the Trainer of transformers on the backend "hvd": the same losses
as on gloo, in the same processes, for the packages take longer to import than to train.

requirements/front_doors.txt has the packages; a test is skipped where its own is missing.
"""

import importlib.util
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from other_launchers import PORTS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch.distributed  # noqa: F401  (registers the backend)
from horovod.bootstrap.network.endpoints import free_port

pytestmark = pytest.mark.slow  # what other packages do with a process group is tried by test_training.py

ROOT = Path(__file__).resolve().parents[3]
STEPS, BATCH = 6, 4


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install {package}")


def data(size: int) -> TensorDataset:
    torch.manual_seed(3)
    inputs = torch.randn(STEPS * BATCH * size, 8)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def by_lightning(backend: str, folder: str) -> list[float]:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    from horovod.torch.distributed.lightning import HorovodStrategy

    losses: list[float] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = (self.layers(batch[0]) - batch[1]).square().mean()
            losses.append(self.all_gather(loss.detach()).mean().item())
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    lightning.seed_everything(1, verbose=False)
    strategy = "hvd" if backend == "hvd" else DDPStrategy(process_group_backend="gloo")
    trainer = lightning.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        logger=False,
        enable_checkpointing=True,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(data(2), batch_size=BATCH))
    assert dist.get_backend() == backend
    assert backend != "hvd" or isinstance(trainer.strategy, HorovodStrategy)
    return losses


def by_accelerate(backend: str, folder: str) -> list[float]:
    from accelerate import Accelerator

    dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2 and dist.get_backend() == backend
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(data(2), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, wanted in loader:
        loss = (model(inputs) - wanted).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    accelerator.save_state(folder)
    accelerator.end_training()
    return losses


def by_keras(backend: str, folder: str) -> list[float]:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    dist.init_process_group(backend)
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)]
    model = nn.parallel.DistributedDataParallel(keras.Sequential(layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_of = keras.losses.MeanSquaredError()
    inputs, wanted = data(2).tensors
    losses = []
    for start in range(dist.get_rank() * BATCH, len(inputs), 2 * BATCH):
        loss = loss_of(wanted[start : start + BATCH], model(inputs[start : start + BATCH]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    told = torch.stack(losses)
    dist.all_reduce(told)
    assert dist.get_backend() == backend
    return told.tolist()


def by_transformers(backend: str, folder: str) -> list[float]:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    dist.init_process_group(backend)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    words = torch.randint(0, 50, (STEPS * BATCH * 2, 6))
    rows = [{"input_ids": row, "labels": int(row[0] % 2)} for row in words]
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
    trainer.train()
    assert dist.get_backend() == backend and arguments.world_size == 2
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


DOORS = {
    "lightning": by_lightning,
    "accelerate": by_accelerate,
    "keras": by_keras,
    "transformers": by_transformers,
}


def in_turn(package: str, folder: str, ports: list[int]) -> list[list[float]]:
    """The losses on gloo, and those on hvd."""
    told = []
    for backend, port in zip(("gloo", "hvd"), ports, strict=False):
        os.environ["MASTER_PORT"] = str(port)
        told.append(DOORS[package](backend, f"{folder}/{backend}"))
        if dist.is_initialized():  # accelerate ends it itself
            dist.destroy_process_group()
        if "accelerate" in sys.modules:
            from accelerate.state import AcceleratorState

            AcceleratorState._reset_state(reset_partial_state=True)
    return told


def in_turn_and_example(package: str, folder: str, ports: list[int]) -> list[list[float]]:
    """The example that has the package, in the same processes, too."""
    told = in_turn(package, folder, ports)
    os.environ["MASTER_PORT"] = str(ports[2])
    example(EXAMPLES[package])
    return told


def example(name: str) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


EXAMPLES = {
    "lightning": "lightning_digits.py",
    "accelerate": "accelerate_digits.py",
    "keras": "keras_ddp.py",
    "transformers": "transformers_digits.py",
}


def test_example(run_ranks: Callable[..., Any]) -> None:
    run_ranks(2, example, ["torch_ddp.py"], env={"MASTER_PORT": str(free_port(PORTS))}, timeout=200)


@pytest.mark.parametrize("package", [pytest.param(name, marks=needs(name)) for name in DOORS])
def test_losses_are_those_of_gloo_and_the_example_runs(
    run_ranks: Callable[..., Any], tmp_path: Path, package: str
) -> None:
    arguments = [package, str(tmp_path), [free_port(PORTS) for _ in range(3)]]
    for gloo, ours in run_ranks(2, in_turn_and_example, arguments, timeout=200):
        assert len(gloo) == STEPS, gloo
        assert ours == pytest.approx(gloo, rel=1e-5)
