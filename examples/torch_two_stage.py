"""A model in two stages, as in recommender systems: tables spread over the ranks, a network on every rank.

horovodrun -np 2 python examples/torch_two_stage.py

Stage 1 looks up a vector for each category of a sample. The tables are too large for one process, so each
rank owns some. Stage 2, a network over the vectors, is data-parallel. Two alltoalls connect them: the ids
travel to the owners of the tables, and the vectors back to the owners of the samples. In the backward pass
the gradients of the vectors go back the same way, automatically.
"""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

import horovod.torch as hvd

TABLES, ROWS, DIM, BATCH, STEPS = 5, 40, 8, 32, 30


class Tables(nn.Module):
    """All tables: ids (samples, tables) to vectors (samples, tables * DIM)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(TABLES, ROWS, DIM))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.weight[torch.arange(TABLES), ids].flatten(1)


class SpreadTables(nn.Module):
    """The tables of this rank, out of ``whole``; answers for all of them. Any number of samples a rank."""

    def __init__(self, whole: Tables) -> None:
        super().__init__()
        owned = torch.arange(TABLES).tensor_split(hvd.size())  # the first ranks may own one more
        self.counts = torch.tensor([len(tables) for tables in owned])
        self.mine = owned[hvd.rank()]
        self.weight = nn.Parameter(whole.weight.detach()[self.mine].clone())
        # The owner gets the sum of what all ranks' losses ask for; they are to be averaged.
        self.weight.register_hook(lambda gradient: gradient / hvd.size())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        samples = len(ids)
        # One row per lookup, (table, id), table by table, and so owner by owner.
        lookups = torch.stack([torch.arange(TABLES).repeat_interleave(samples), ids.t().flatten()], dim=1)
        asked, sources = hvd.alltoall(lookups, splits=self.counts * samples)
        vectors = self.weight[asked[:, 0] - self.mine[:1], asked[:, 1]]
        answers, _ = hvd.alltoall(vectors, splits=sources)
        return answers.view(TABLES, samples, DIM).transpose(0, 1).flatten(1)


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """The same on every rank: ids of categories, and a score that depends on all of them."""
    ids = torch.randint(ROWS, (BATCH * hvd.size(), TABLES))
    taste = torch.randn(TABLES, ROWS)
    return ids, taste[torch.arange(TABLES), ids].sum(dim=1)


def step(
    tables: nn.Module,
    network: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    ids: torch.Tensor,
    scores: torch.Tensor,
) -> torch.Tensor:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = F.mse_loss(network(tables(ids)).squeeze(1), scores)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


def main() -> int:
    hvd.init()
    torch.manual_seed(1)
    ids, scores = make_data()
    my_ids, my_scores = ids.chunk(hvd.size())[hvd.rank()], scores.chunk(hvd.size())[hvd.rank()]
    whole_tables = Tables()
    whole_network = nn.Sequential(nn.Linear(TABLES * DIM, 64), nn.Tanh(), nn.Linear(64, 1))
    tables, network = SpreadTables(whole_tables), copy.deepcopy(whole_network)

    # Each table has one owner, so its optimizer is an ordinary one. The network is averaged over all ranks.
    of_tables = torch.optim.SGD(tables.parameters(), lr=0.5)
    of_network = torch.optim.SGD(network.parameters(), lr=0.05)
    of_network = hvd.DistributedOptimizer(of_network, network.named_parameters())
    # To compare with: one process, all samples, all tables.
    alone = [torch.optim.SGD(whole_tables.parameters(), lr=0.5)]
    alone += [torch.optim.SGD(whole_network.parameters(), lr=0.05)]

    losses = []
    for _ in range(STEPS):
        losses.append(hvd.allreduce(step(tables, network, [of_tables, of_network], my_ids, my_scores)).item())
        step(whole_tables, whole_network, alone, ids, scores)

    pairs = [*zip(network.parameters(), whole_network.parameters(), strict=True)]
    pairs += [(tables.weight, whole_tables.weight[tables.mine])]
    same = all(torch.allclose(a, b, atol=1e-4) for a, b in pairs) and losses[-1] < losses[0] / 2
    same = all(hvd.allgather_object(same))
    if hvd.rank() == 0:
        verdict = "equal to" if same else "DIFFERENT from"
        print(
            f"{hvd.size()} process(es), {TABLES} tables, loss {losses[0]:.3f} to {losses[-1]:.3f}, "
            f"parameters {verdict} one process's"
        )
    hvd.shutdown()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
