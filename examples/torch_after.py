"""The script of torch_before.py, for as many processes as you start.

horovodrun -np 2 python examples/torch_after.py
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

hvd.init()  # this process becomes one rank of the job
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
data = TensorDataset(x, y)
sampler = DistributedSampler(data, hvd.size(), hvd.rank())  # each rank has its own part
loader = DataLoader(data, batch_size=32, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size())  # more samples a step
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())  # averages gradients
hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # all start from the same model

for epoch in range(1, 11):
    sampler.set_epoch(epoch)  # another order in each epoch
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    accuracy = (model(x).argmax(1) == y).float().mean()
    if hvd.rank() == 0:  # all ranks hold the same model: one prints and saves
        print(f"epoch {epoch}  accuracy {accuracy:.1%}")
if hvd.rank() == 0:
    torch.save(model.state_dict(), "model.pt")
