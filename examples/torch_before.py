"""Trains a small network on handwritten digits with one process: the script before the changes."""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=32, shuffle=True)

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1, 11):
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    accuracy = (model(x).argmax(1) == y).float().mean()
    print(f"epoch {epoch}  accuracy {accuracy:.1%}")
torch.save(model.state_dict(), "model.pt")
