"""Trains a model whose large parameter differs between ranks, where PyTorch finds no numpy."""

import sys
import warnings

sys.modules["numpy"] = None  # type: ignore[assignment]  # as if it were not installed
warnings.simplefilter("ignore")  # torch says so

import torch  # noqa: E402

import horovod.torch as hvd  # noqa: E402

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 1))
if "differ" in sys.argv:
    model[0].weight.data[7, 7] += hvd.rank()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for _ in range(2):
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
print(f"rank {hvd.rank()} has trained", flush=True)
hvd.shutdown()
