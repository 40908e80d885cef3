"""DistributedOptimizer in two real processes: as good as one process with all the data, and all its
options.
"""

import threading
import warnings

import pytest
import torch
from both_ways import BASES, batches, flat, mlp, train, train_both_ways
from torch import nn

import horovod.torch as hvd


def train_with_options():
    """Training with every option, one after the other; returns for each (distance, all ranks equal)."""
    outcomes = {}
    cases = {
        "groups": {"groups": 2},
        "lists": {"groups": "lists"},
        "predivide": {"gradient_predivide_factor": 2.0},
        "predivided groups": {"gradient_predivide_factor": 2.0, "groups": 2},
        "fp16": {"compression": hvd.Compression.fp16},
        "bf16": {"compression": hvd.Compression.bf16, "groups": 3},
        "unnamed": {"named_parameters": None},
    }
    alone = mlp()
    train(alone, BASES["SGD"](alone.parameters()), 0, 1)
    for label, options in cases.items():
        net = mlp()
        options = {"named_parameters": net.named_parameters(), **options}
        if options.get("groups") == "lists":
            options["groups"] = [[net[0].weight, net[2].weight], [net[4].bias]]
        optimizer = hvd.DistributedOptimizer(BASES["SGD"](net.parameters()), **options)
        train(net, optimizer, hvd.rank(), hvd.size())
        bits = hvd.allgather_object(flat(net).numpy().tobytes())
        distance = (flat(net) - flat(alone)).abs().max().item()
        outcomes[label] = [distance, len(set(bits)) == 1]
    return outcomes


def linear(features=3):
    torch.manual_seed(0)
    return nn.Linear(features, 2)


def wrap(net, lr=1.0, **options):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=lr), named_parameters=net.named_parameters(), **options
    )


def rows(rank, count=1, features=3):
    return torch.arange(float(count * features)).reshape(count, features) + rank


def expected_gradient(weight=lambda rank: 1.0):
    """Of ``linear()(rows(rank)).sum()``, averaged."""
    total = sum(rows(rank) * weight(rank) for rank in range(hvd.size()))
    return (total / hvd.size()).expand(2, 3)


def accumulates():
    net = linear()
    optimizer = wrap(net, backward_passes_per_step=2)
    for _ in range(3):
        optimizer.zero_grad()
        net(rows(hvd.rank())).sum().backward()
        net(rows(hvd.rank())).sum().backward()
        optimizer.step()
        assert torch.equal(net.weight.grad, 2 * expected_gradient())


def sums():
    net = linear()
    optimizer = wrap(net, op=hvd.Sum)
    net(rows(hvd.rank())).sum().backward()
    optimizer.synchronize()
    assert torch.equal(net.weight.grad, hvd.size() * expected_gradient())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert "skip_synchronize" in str(caught[0].message)


def clips():
    net = linear()
    optimizer = wrap(net)
    before = net.weight.detach().clone()
    net(rows(hvd.rank())).sum().backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    assert len(set(hvd.allgather_object(norm.item()))) == 1
    with optimizer.skip_synchronize():
        optimizer.step()
    assert torch.equal(net.weight, before - net.weight.grad)
    assert net.weight.grad.norm() <= 0.5


def closes():
    net = linear()
    optimizer = wrap(net, lr=0.0)

    def closure():
        optimizer.zero_grad()
        loss = net(rows(hvd.rank())).sum()
        loss.backward()
        return loss

    assert torch.equal(optimizer.step(closure), net(rows(hvd.rank())).sum())
    assert torch.equal(net.weight.grad, expected_gradient())


def unused():
    """A branch that only one rank takes."""
    net = nn.ModuleDict({"both": linear(), "one": linear()})
    optimizer = wrap(net)
    loss = net["both"](rows(hvd.rank())).sum()
    if hvd.rank() == 0:
        loss = loss + net["one"](rows(0)).sum()
    loss.backward()
    optimizer.step()
    assert torch.equal(net["both"].weight.grad, expected_gradient())
    assert torch.equal(net["one"].weight.grad, (rows(0) / hvd.size()).expand(2, 3))


def frozen():
    net = nn.Sequential(linear(), nn.Linear(2, 2))
    net[0].requires_grad_(False)
    optimizer = wrap(net)
    net(rows(hvd.rank())).sum().backward()
    optimizer.step()
    assert net[0].weight.grad is None
    net[0].requires_grad_(True)
    optimizer.zero_grad()
    net[0](rows(hvd.rank())).sum().backward()
    optimizer.step()
    assert torch.equal(net[0].weight.grad, expected_gradient())


def shared():
    net = nn.ModuleList([linear(), linear()])
    net[1].weight = net[0].weight
    optimizer = wrap(net)
    (net[0](rows(hvd.rank())) + net[1](rows(hvd.rank()))).sum().backward()
    optimizer.step()
    assert torch.equal(net[0].weight.grad, 2 * expected_gradient())


def expanded():
    """Gradients that are not contiguous, set by hand."""
    net = linear()
    optimizer = wrap(net)
    net.weight.grad = rows(hvd.rank()).expand(2, 3)
    net.bias.grad = torch.zeros(4)[::2]
    optimizer.step()
    assert torch.equal(net.weight.grad, expected_gradient())


def one_fails():
    """A parameter whose shape differs between ranks is an error on all of them, by name; then it goes on."""
    net, odd = linear(), nn.Parameter(torch.ones(2 + hvd.rank()))
    named = [*net.named_parameters(), ("odd", odd)]
    plain = torch.optim.SGD([p for _, p in named], lr=1.0)
    with pytest.raises(hvd.TensorMismatchError, match="odd") as caught:
        hvd.DistributedOptimizer(plain, named_parameters=named)
    assert len(set(hvd.allgather_object(str(caught.value)))) == 1
    optimizer = wrap(net)
    net(rows(hvd.rank())).sum().backward()
    optimizer.step()
    assert torch.equal(net.weight.grad, expected_gradient())


def caches():
    """From the third step on all negotiation hits the cache: in the second the ranks compare their models."""
    net = mlp()
    optimizer = wrap(net, lr=0.01)
    for step, (inputs, labels) in enumerate(batches(4)):
        before = hvd.counters()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        after = hvd.counters()
        assert after["tensors"] > before["tensors"]
        assert step < 2 or after["cache_misses"] == before["cache_misses"]


def thread_safe():
    """Operations from another thread while training goes on."""
    results = []
    tensors = [torch.full((100,), float(hvd.rank())) for _ in range(50)]

    def work():
        for index, tensor in enumerate(tensors):
            results.append(hvd.allreduce(tensor, name=f"thread.{index}", op=hvd.Sum)[0].item())

    thread = threading.Thread(target=work)
    thread.start()
    net = mlp()
    train(net, wrap(net, lr=0.01), hvd.rank(), hvd.size())
    thread.join()
    assert set(results) == {float(sum(range(hvd.size())))}


HABITS = (accumulates, sums, clips, closes, unused, frozen, shared, expanded, one_fails, caches, thread_safe)


def ranks_train():
    """Everything in one launch; a habit is what programs do around the optimizer, and raises
    AssertionError.
    """
    hvd.init()
    results = {name: train_both_ways(name) for name in BASES}
    for habit in HABITS:
        habit()
        hvd.barrier()
    return {**results, "options": train_with_options()}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_training(run_ranks, transport):
    results = run_ranks(2, ranks_train, env={"HOROVOD_TRANSPORT": transport})
    for name in BASES:
        assert results[0][name]["bits"] == results[1][name]["bits"]
        assert results[0][name]["moved"] > 0.05
        assert results[0][name]["distance"] < 1e-4
    for label, (distance, equal) in results[0]["options"].items():
        assert equal, label
        assert distance < (0.05 if "16" in label else 1e-4), label
