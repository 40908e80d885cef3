"""A script for DistributedDataParallel with one changed word: the backend is "hvd".

torchrun --nproc-per-node 2 examples/torch_ddp.py
horovodrun -np 2 python examples/torch_ddp.py
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch.distributed  # noqa: F401  (makes the backend known)

dist.init_process_group("hvd")
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler)

layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())

for epoch in range(1, 6):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}  loss {loss.item():.3f}")

checksum = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()]).sum()
checksums = [torch.empty_like(checksum) for _ in range(dist.get_world_size())]
dist.all_gather(checksums, checksum)
assert all(torch.equal(checksum, other) for other in checksums)
if dist.get_rank() == 0:
    print("all ranks have the same parameters")
dist.destroy_process_group()
