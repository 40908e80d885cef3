"""Keras 3 on torch over horovod: a Keras model is a torch module, so DistributedDataParallel takes it.

torchrun --nproc-per-node 2 examples/keras_ddp.py
"""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported

import keras
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch.distributed  # noqa: F401  (makes the backend known)

dist.init_process_group("hvd")
keras.utils.set_random_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler)

layers = [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
model = keras.Sequential(layers)  # an Input gives it its weights, which DDP must see
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1 * dist.get_world_size())
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

for epoch in range(1, 6):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(y, parallel(x))
        loss.backward()
        optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}  loss {loss.item():.3f}")

checksum = torch.tensor(sum(float(weights.sum()) for weights in model.get_weights()))
checksums = [torch.empty_like(checksum) for _ in range(dist.get_world_size())]
dist.all_gather(checksums, checksum)
assert all(torch.equal(checksum, other) for other in checksums)
if dist.get_rank() == 0:
    print("all ranks have the same weights")
dist.destroy_process_group()
