"""Broadcasting parameters, the state of every torch optimizer, and objects, between real processes."""

import torch
from torch import nn

import horovod.torch as hvd

OPTIMIZERS = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax Muon NAdam RAdam RMSprop Rprop SGD".split()
TEXT = "分布式训练 两个进程 一个模型"


def trained(name, steps, wrapped, **options):
    """An optimizer whose parameters and state depend on the rank."""
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
    plain = getattr(torch.optim, name)(net.parameters(), lr=0.01 * (1 + hvd.rank()), **options)
    for _ in range(steps):
        plain.zero_grad()
        net(torch.ones(2, 3)).pow(2).sum().backward()
        plain.step()
    return net, hvd.DistributedOptimizer(plain, net.named_parameters()) if wrapped else plain


def agree(value):
    """Whether all ranks have the same ``repr``."""
    return len(set(hvd.allgather_object(repr(value)))) == 1


def optimizers():
    for name in [name for name in OPTIMIZERS if hasattr(torch.optim, name)]:
        for root, with_state in ((0, {0}), (1, {0, 1}), (1, {0}), (0, set())):
            net, optimizer = trained(name, 2 if hvd.rank() in with_state else 0, wrapped=root == 0)
            hvd.broadcast_parameters(net.state_dict(), root_rank=root)
            has_state = hvd.broadcast_object(bool(optimizer.state), root)
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            assert agree(optimizer.state_dict()), name
            assert bool(optimizer.state) == has_state, name
            assert optimizer.param_groups[0]["lr"] == 0.01 * (1 + root)
            optimizer.zero_grad()  # and it goes on from there
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            assert agree(net.state_dict()), name


def wrong_groups():
    net, extra = nn.Linear(2, 2), nn.Linear(2, 2)
    parameters = [*net.parameters(), *(extra.parameters() if hvd.rank() else [])]
    try:
        hvd.broadcast_optimizer_state(torch.optim.SGD(parameters, lr=0.1), 0)
    except ValueError as error:
        text = str(error)
    assert "rank 1: it has groups of [4] parameters" in text
    assert agree(text)


def parameters():
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).to(memory_format=torch.channels_last)
    for params in (net.state_dict(), list(net.named_parameters()), list(net.parameters())):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(hvd.rank())
        hvd.broadcast_parameters(params, root_rank=1)
        assert agree(list(net.parameters()))
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)


def objects():
    mine = {"rank": hvd.rank(), "text": TEXT * (1 + hvd.rank())}
    for root in range(hvd.size()):
        expected = {"rank": root, "text": TEXT * (1 + root)}
        assert hvd.broadcast_object(mine if hvd.rank() == root else None, root, name="object") == expected
    gathered = hvd.allgather_object(mine)
    assert gathered == [{"rank": rank, "text": TEXT * (1 + rank)} for rank in range(hvd.size())]
    large = bytes(range(256)) * 20_000
    assert hvd.broadcast_object(large if hvd.rank() == 1 else None, 1) == large
    sizes = [len(data) for data in hvd.allgather_object(large[: hvd.rank() * 5_000_000])]
    assert sizes == [rank * 5_000_000 for rank in range(hvd.size())]
    assert hvd.broadcast_object(lambda x: x * 2, 0)(21) == 42


def ranks_state():
    hvd.init()
    for check in (optimizers, wrong_groups, parameters, objects):
        check()
    return True


def test_state_and_objects(run_ranks):
    assert run_ranks(2, ranks_state) == [True, True]
