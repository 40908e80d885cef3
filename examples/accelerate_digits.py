"""accelerate over horovod: start the process group yourself, with the backend "hvd", before the Accelerator.

torchrun --nproc-per-node 2 examples/accelerate_digits.py
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch.distributed  # noqa: F401  (makes the backend known)

dist.init_process_group("hvd")  # accelerate takes the group that is there
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
loader = DataLoader(data, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(1, 6):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    mean = accelerator.gather(loss.detach()).mean()
    accelerator.print(f"epoch {epoch}  loss {mean.item():.3f}")
accelerator.end_training()
