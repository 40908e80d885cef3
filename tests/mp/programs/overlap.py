"""One rank: a few training steps of a deep MLP, for the timeline to show."""

import torch

import horovod.torch as hvd


def main() -> None:
    hvd.init()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 512) for _ in range(16)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = torch.randn(256, 512)
    for _ in range(8):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    hvd.shutdown()


main()
