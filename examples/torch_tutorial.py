"""The usual first script: a fully connected network, Adam, five epochs; on a GPU where there is one.

horovodrun -np 2 python examples/torch_tutorial.py
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


def load_data() -> TensorDataset:
    """Scikit-learn's digits, enlarged from 8x8 to the 28x28 pixels of the well-known data set."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = F.pad(F.interpolate(images, size=(24, 24), mode="bilinear", align_corners=False), (2, 2, 2, 2))
    return TensorDataset(images.flatten(1), torch.tensor(digits.target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
        device = torch.device("cuda", hvd.local_rank())

    data = load_data()
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)

    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        correct, seen = 0, 0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            output = model(images)
            loss = F.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
            correct += int((output.argmax(1) == labels).sum())
            seen += len(labels)
        accuracy = hvd.allreduce(torch.tensor(correct / seen), name="accuracy").item()
        mean_loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.is_master():
            print(f"epoch {epoch + 1}  loss {mean_loss:.4f}  training accuracy {accuracy:.1%}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
