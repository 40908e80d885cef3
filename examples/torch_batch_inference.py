"""Sharded batch inference from a config file: every rank labels its share of the samples, rank 0 writes all.

horovodrun -np 2 python examples/torch_batch_inference.py examples/inference.json

The samples and the model are made from the seed; put your own into ``load_samples`` and ``load_model``.
"""

import csv
import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import nn

import horovod.torch as hvd


@dataclass(frozen=True)
class Config:
    """What the config file says, all of it required."""

    samples: int
    features: int
    classes: int
    seed: int
    batch: int  # samples at a time
    output: str  # CSV file: one line per sample, in their order


def read_config(path: str) -> Config | str:
    """What the file says, or one line about what is wrong with it."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        return f"{path}: {error.strerror}"
    except ValueError as error:
        return f"{path}: {error}"
    if not isinstance(values, dict):
        return f"{path}: must be an object: {{...}}"
    types = {field.name: field.type for field in fields(Config)}
    for key in values:
        if key not in types:
            return f"{path}: unknown key {key!r}; known are {', '.join(types)}"
    for key, expected in types.items():
        if key not in values:
            return f"{path}: key {key!r} is missing"
        if type(values[key]) is not expected:
            return f"{path}: {key!r} must be of type {expected.__name__}, not {values[key]!r}"
        if expected is int and values[key] < 1:
            return f"{path}: {key!r} must be at least 1, not {values[key]}"
    if not (folder := Path(values["output"]).parent).is_dir():
        return f"{path}: there is no folder {str(folder)!r} for the output"
    return Config(**values)


def load_samples(config: Config, first: int, end: int) -> torch.Tensor:
    """The samples ``first`` to ``end``; no rank needs those of another."""
    generator = torch.Generator().manual_seed(config.seed)
    return torch.randn(config.samples, config.features, generator=generator)[first:end]


def load_model(config: Config) -> nn.Module:
    """On rank 0, from wherever the model is kept; the others get its parameters from there."""
    torch.manual_seed(config.seed if hvd.rank() == 0 else 0)
    model = nn.Sequential(nn.Linear(config.features, 64), nn.ReLU(), nn.Linear(64, config.classes))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model.eval()


@torch.no_grad()
def predict(model: nn.Module, samples: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels and their probabilities."""
    if not len(samples):
        return torch.empty(0, dtype=torch.int64), torch.empty(0)
    outputs = [model(part).softmax(dim=1).max(dim=1) for part in samples.split(batch)]
    return torch.cat([best.indices for best in outputs]), torch.cat([best.values for best in outputs])


def write(path: str, labels: torch.Tensor, probabilities: torch.Tensor) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", "label", "probability"])
        for sample, (label, probability) in enumerate(zip(labels, probabilities, strict=True)):
            writer.writerow([sample, label.item(), f"{probability:.4f}"])


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} CONFIG.json")
    hvd.init()
    # Rank 0 alone reads the file, so all have the same, and all stop if it is of no use.
    config = hvd.broadcast_object(read_config(sys.argv[1]) if hvd.rank() == 0 else None)
    if isinstance(config, str):
        print(config, file=sys.stderr, flush=True)
        hvd.barrier()  # the first rank to end with an error ends the job: let all have their say
        return 2
    model = load_model(config)

    # The shares differ by one sample at most; where there are more ranks than samples some are empty.
    bounds = [config.samples * rank // hvd.size() for rank in range(hvd.size() + 1)]
    samples = load_samples(config, bounds[hvd.rank()], bounds[hvd.rank() + 1])
    mine = predict(model, samples, config.batch)
    labels, probabilities = hvd.grouped_allgather(mine)  # in rank order, which is the samples' order

    same = True
    if hvd.rank() == 0:
        write(config.output, labels, probabilities)
        alone = predict(model, load_samples(config, 0, config.samples), config.batch)
        same = torch.equal(labels, alone[0]) and torch.allclose(probabilities, alone[1], atol=1e-5)
        verdict = "equal to" if same else "DIFFERENT from"
        print(f"{hvd.size()} process(es) wrote {config.output}: {len(labels)} lines, {verdict} one process's")
    hvd.shutdown()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
