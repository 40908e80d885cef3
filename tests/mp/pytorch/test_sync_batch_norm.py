"""SyncBatchNorm between real processes, against BatchNorm on the combined batch."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch.sync_batch_norm import convert_sync_batchnorm

SIZES = [5, 2, 0, 3]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.BatchNorm1d(8),
    ).double()


def data(rows):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 3, 4, 4, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(rows, 8, generator=generator, dtype=torch.float64)


def three_steps(net, inputs, targets, shared):
    """Trains on the sum of squares; ``shared`` adds up the gradients of all ranks."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        inputs = inputs.detach().requires_grad_()
        (net(inputs) - targets).square().sum().backward()
        shared([parameter.grad for parameter in net.parameters()])
        optimizer.step()
    return inputs.grad


def compare(process_set, device="cpu"):
    """The greatest distance between training together and alone, in all that training leaves behind."""
    sizes = SIZES[: process_set.size()]
    me = process_set.rank()
    inputs, targets = data(sum(sizes))
    alone = network()
    grad_alone = three_steps(alone, inputs, targets, lambda gradients: None)
    together = convert_sync_batchnorm(network().to(device), process_set)
    start = sum(sizes[:me])
    mine = slice(start, start + sizes[me])

    def add_up(gradients):
        for gradient in gradients:
            hvd.allreduce_(gradient, op=hvd.Sum, process_set=process_set)

    grad = three_steps(together, inputs[mine].to(device), targets[mine].to(device), add_up)
    pairs = [(grad, grad_alone[mine])]
    pairs += zip(together.state_dict().values(), alone.state_dict().values(), strict=True)
    return max((a.cpu().double() - b.double()).abs().max().item() for a, b in pairs if a.numel())


def on_all_ranks(device):
    hvd.init()
    return compare(hvd.global_process_set, device)


def on_overlapping_sets():
    first, second = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[first, second])
    return [compare(each) for each in (first, second) if each.included()]


def with_the_optimizer():
    """Converted, averaged and stepped by the DistributedOptimizer, on equal shares of the batch."""
    hvd.init()
    inputs, targets = data(8)
    alone, together = network(), convert_sync_batchnorm(network())
    mine = slice(hvd.rank(), None, hvd.size())
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (alone, together)]
    optimizers[1] = hvd.DistributedOptimizer(optimizers[1], together.named_parameters())
    for _ in range(5):
        for net, optimizer, rows in zip((alone, together), optimizers, (slice(None), mine), strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    pairs = zip(together.state_dict().values(), alone.state_dict().values(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


def layers_of_different_width():
    hvd.init()
    layer = convert_sync_batchnorm(nn.BatchNorm1d(3 + hvd.rank()))
    try:
        layer(torch.ones(4, 3 + hvd.rank()))
    except hvd.TensorMismatchError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.full)])
def test_equals_batch_norm_on_the_combined_batch(run_ranks, np):
    assert max(run_ranks(np, on_all_ranks, ["cpu"])) < 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(run_ranks):
    assert max(run_ranks(2, on_all_ranks, ["cuda"])) < 1e-9


def test_process_sets(run_ranks):
    first, both, second = run_ranks(3, on_overlapping_sets)
    assert [len(first), len(both), len(second)] == [1, 2, 1]
    assert max(first + both + second) < 1e-12


def test_with_the_optimizer(run_ranks):
    assert max(run_ranks(2, with_the_optimizer)) < 1e-12


def test_different_layers_are_an_error(run_ranks):
    texts = run_ranks(2, layers_of_different_width)
    assert texts[0] == texts[1] and "allgather" in texts[0].lower()
