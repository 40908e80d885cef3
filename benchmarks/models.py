"""The models that train.py steps, with one batch each of random data."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.extend([nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def cnn() -> nn.Module:
    """The shape of ResNet-18, 11.7 million parameters, for 64x64 images."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class LanguageModel(nn.Module):
    """Two transformer layers of width 512, 14.7 million parameters."""

    def __init__(self, words: int = 8192, width: int = 512, length: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        layer = {"nhead": 8, "dim_feedforward": 2048, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.layers = nn.Sequential(*[nn.TransformerEncoderLayer(width, **layer) for _ in range(2)])
        self.output = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.layers(self.embedding(x) + self.position)).flatten(0, 1)


class ResidualMLP(nn.Module):
    """60 layers of width 476, 13.6 million parameters and little work: communication decides."""

    def __init__(self, width: int = 476, depth: int = 60) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return x


@dataclass
class Task:
    """A model's maker, its batch, and the loss of its output."""

    make: Callable[[], nn.Module]
    inputs: torch.Tensor
    loss: Callable[[torch.Tensor], torch.Tensor]


def task(name: str, quick: bool) -> Task:
    """The task of that name, its batch drawn from torch's seed; `quick` makes the MLP small."""
    if name == "cnn":
        labels = torch.randint(0, 1000, (16,))
        return Task(cnn, torch.randn(16, 3, 64, 64), lambda output: F.cross_entropy(output, labels))
    if name == "transformer":
        targets = torch.randint(0, 8192, (8 * 64,))
        return Task(
            LanguageModel, torch.randint(0, 8192, (8, 64)), lambda output: F.cross_entropy(output, targets)
        )
    width, depth = (16, 4) if quick else (476, 60)
    return Task(
        lambda: ResidualMLP(width, depth), torch.randn(8, width), lambda output: output.square().mean()
    )
