"""torch_before.py, distributed: the lines marked # 1 to # 5 are new or changed.

horovodrun -np 2 python examples/torch_after.py
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler  # 2

import horovod.torch as hvd  # 1

hvd.init()  # 1. This process becomes one rank of the job.
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
sampler = DistributedSampler(data, hvd.size(), hvd.rank())  # 2. Each rank trains on its own part.
loader = DataLoader(data, batch_size=32, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())  # 3. More samples a step.
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())  # 3. Averages gradients.
hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # 4. All start with the same model.

for epoch in range(1, 6):
    sampler.set_epoch(epoch)  # 2. A new order in every epoch.
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if hvd.rank() == 0:  # 5. One rank prints and saves.
        print(f"epoch {epoch}  loss {loss.item():.3f}")

if hvd.rank() == 0:  # 5
    torch.save(model.state_dict(), "model.pt")
