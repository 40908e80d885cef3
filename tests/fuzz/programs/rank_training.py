"""The act that trains: distributed optimizers of torch; a parameter may have no gradient on some ranks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import random_program as acts
import reference
import torch
from random_program import EVERYBODY

import horovod.torch as hvd

if TYPE_CHECKING:
    from rank_player import Player

RATE = 0.125


class Model:
    """One model with its optimizer, and what numpy makes of the same gradients."""

    def __init__(self, player: Player, deed: acts.Training, prefix: str, sizes: tuple[int, ...]) -> None:
        self.momentum, self.missing, self.ranks = deed.momentum, deed.missing, player.size
        self.weights = [torch.nn.Parameter(torch.full((size,), float(player.rank))) for size in sizes]
        named = [(f"{prefix}.w{at}", weight) for at, weight in enumerate(self.weights)]
        inner = torch.optim.SGD(self.weights, RATE, momentum=deed.momentum)
        self.optimizer = hvd.DistributedOptimizer(inner, named_parameters=named, num_groups=deed.groups)
        hvd.broadcast_parameters(named, root_rank=player.size - 1)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.expected = [np.full(size, player.size - 1.0) for size in sizes]
        self.velocity = [np.zeros(size) for size in sizes]

    def step(self, draw: random.Random, rank: int) -> None:
        """One step; ``draw`` gives the same on every rank."""
        gradients = [self.gradients(draw, len(values), at) for at, values in enumerate(self.expected)]
        self.optimizer.zero_grad()
        mine = [(w, g[rank]) for w, g in zip(self.weights, gradients, strict=True)]
        sum((w * torch.from_numpy(g)).sum() for w, g in mine if g is not None).backward()
        self.optimizer.step()
        for at, of_ranks in enumerate(gradients):
            mean = sum((g for g in of_ranks if g is not None), np.zeros(1)) / self.ranks
            self.velocity[at] = self.momentum * self.velocity[at] + mean
            self.expected[at] = self.expected[at] - RATE * self.velocity[at]

    def gradients(self, draw: random.Random, size: int, parameter: int) -> list[np.ndarray | None]:
        """Of one parameter, by rank: None where the rank has none. Some rank has one; of the first, all."""
        values = [np.full(size, draw.randint(-8, 8), np.float32) for _ in range(self.ranks)]
        kept = draw.randrange(self.ranks)
        return [
            value if parameter == 0 or rank == kept or draw.random() >= self.missing else None
            for rank, value in enumerate(values)
        ]

    def check(self) -> str:
        """Raises AssertionError for wrong weights; returns what must be equal on all ranks."""
        arrays = [weight.detach().numpy() for weight in self.weights]
        for at, (actual, expected) in enumerate(zip(arrays, self.expected, strict=True)):
            right = np.allclose(actual, expected, rtol=1e-4, atol=1e-4)
            assert right, f"weight {at}: {actual[:4]}, not {expected[:4]}"
        return reference.digest(arrays)


def train(player: Player, deed: acts.Training, prefix: str) -> None:
    """Each step of each model, as numpy computes it."""
    draw = random.Random(f"{player.program.seed} {prefix}")
    models = [Model(player, deed, f"{prefix}.m{at}", sizes) for at, sizes in enumerate(deed.sizes)]
    for player.step, which in enumerate(deed.order):
        models[which].step(draw, player.rank)
        player.tell(EVERYBODY, f"step {player.step}", models[which].check())
        player.checked += len(deed.sizes[which])
