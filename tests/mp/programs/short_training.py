"""Twenty steps of a small model, compared on every rank with what numpy computes from all ranks' data."""

import numpy as np
import torch

import horovod.torch as hvd

STEPS, WIDTH, ROWS, RATE = 20, 64, 16, 0.1


def batch(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """What a rank trains on in a step."""
    random = np.random.default_rng([rank, step])
    return random.standard_normal((ROWS, WIDTH)), random.standard_normal((ROWS, 1))


def reference(ranks: int) -> np.ndarray:
    """Gradient descent on the mean squared error, averaged over the ranks."""
    weight = np.zeros((WIDTH, 1))
    for step in range(STEPS):
        gradients = [
            2 / ROWS * x.T @ (x @ weight - y) for x, y in (batch(rank, step) for rank in range(ranks))
        ]
        weight -= RATE * np.mean(gradients, axis=0)
    return weight


def train() -> np.ndarray:
    """The same by torch and horovod."""
    model = torch.nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(STEPS):
        x, y = (torch.from_numpy(each) for each in batch(hvd.rank(), step))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model.weight.detach().numpy().T


def other_operations() -> None:
    """One of each of the rest, with rows that differ from rank to rank."""
    rank, size = hvd.rank(), hvd.size()
    rows = hvd.allgather(torch.full((rank + 1, 3), float(rank)))
    assert rows.shape == (size * (size + 1) // 2, 3)
    received, splits = hvd.alltoall(torch.arange(size), torch.ones(size, dtype=torch.int32))
    assert received.tolist() == [rank] * size and splits.tolist() == [1] * size
    assert hvd.reducescatter(torch.ones(size, 2), op=hvd.Sum).tolist() == [[size, size]]
    assert hvd.broadcast_object({"from": rank}, root_rank=size - 1) == {"from": size - 1}
    last = hvd.add_process_set([size - 1])
    if last.included():
        assert hvd.allreduce(torch.ones(5), op=hvd.Sum, process_set=last).sum() == 5 * last.size()
    hvd.remove_process_set(last)
    hvd.join()


torch.set_num_threads(1)
hvd.init(process_sets="dynamic")
np.testing.assert_allclose(train(), reference(hvd.size()), rtol=1e-9)
other_operations()
print(f"rank {hvd.rank()}: {STEPS} steps are exact", flush=True)
hvd.shutdown()
