"""Lightning, accelerate and the Trainer of transformers on the backend "hvd": the same losses as on gloo.

The packages are none of what make installs: pip install lightning accelerate transformers
"""

import importlib.util
import runpy
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


def example(name: str) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def check_same(run_ranks: Callable[..., Any], program: Callable[..., Any], folder: Path) -> None:
    told = {}
    for backend in ("gloo", "hvd"):
        env = {"MASTER_PORT": str(free_port(PORTS))}
        told[backend] = run_ranks(2, program, [backend, str(folder / backend)], env=env, timeout=200)
    assert told["gloo"][0], "no losses"
    assert told["hvd"][0] == pytest.approx(told["gloo"][0], rel=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "torch_ddp.py",
        pytest.param("accelerate_digits.py", marks=needs("accelerate")),
        pytest.param("lightning_digits.py", marks=needs("lightning")),
    ],
)
def test_example(run_ranks: Callable[..., Any], name: str) -> None:
    run_ranks(2, example, [name], env={"MASTER_PORT": str(free_port(PORTS))}, timeout=200)


@needs("lightning")
def test_lightning(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    check_same(run_ranks, by_lightning, tmp_path)


@needs("accelerate")
def test_accelerate(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    check_same(run_ranks, by_accelerate, tmp_path)


@needs("transformers")
def test_trainer_of_transformers(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    check_same(run_ranks, by_transformers, tmp_path)
