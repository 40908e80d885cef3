"""A backward pass that fails on one rank: the others hear of it, nobody waits, training goes on in step."""

import pytest
import torch
from failing import Unlucky
from torch import nn
from training import loss_of, mlp, own_samples, sgd, train, wrap

import horovod.torch as hvd


def fail_in_backward(net):
    inputs, labels = own_samples()
    hidden = Unlucky.apply(net[1](net[0](inputs)))
    with pytest.raises(MemoryError):
        nn.functional.cross_entropy(net[2](hidden), labels).backward()


def failed_backward_passes():
    for options in ({}, {"groups": 2}, {"groups": 1}):
        net, reference = mlp(), mlp()
        optimizer, alone = wrap(net, **options), sgd(reference)
        train(net, optimizer, reference, alone, steps=1)
        fail_in_backward(net)
        optimizer.zero_grad()
        train(net, optimizer, reference, alone, steps=2)
        if hvd.rank() == 0:  # the others hear of it, and make no step
            fail_in_backward(net)
            optimizer.zero_grad()
        else:
            loss_of(net, own_samples()).backward()
            with pytest.raises(RuntimeError, match="backward pass failed on rank 0"):
                optimizer.step()
            optimizer.zero_grad()
        train(net, optimizer, reference, alone, steps=2)


def failed_backward_pass_of_two_optimizers(groups, shared):
    """The others hear of it once, by the first that forgets its gradients."""
    net, reference = mlp(), mlp()
    named = [(name, each) for name, each in net.named_parameters() if name in shared]
    optimizers = [wrap(net, groups=groups)]
    inner = torch.optim.SGD([each for _, each in named], lr=0.1)
    optimizers.append(hvd.DistributedOptimizer(inner, named, groups=groups))
    if hvd.rank() == 0:
        fail_in_backward(net)
    else:
        loss_of(net, own_samples()).backward()
        with pytest.raises(RuntimeError, match="backward pass failed on rank 0"):
            optimizers[0].step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    train(net, optimizers[0], reference, sgd(reference), steps=2)


class TwoTables(nn.Module):
    """A gradient that is made first, and two of tables, sparse or not, behind which a backward pass fails."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(3)
        self.tables = nn.ModuleList(nn.Embedding(40, 16, sparse=sparse) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(16))
        self.head = nn.Linear(16, 32)

    def forward(self, fails=False):
        hidden = sum(table(torch.tensor([hvd.rank(), 5])).sum(0) for table in self.tables) + self.bias
        return self.head(Unlucky.apply(hidden) if fails else hidden).sum()


def failures_are_told(sparse=False, together=(), **options):
    """Also where a bucket takes more than one operation: the others hear of it, and nobody waits."""
    net = TwoTables(sparse)
    groups = [[net.get_parameter(name) for name in together]] if together else None
    optimizer = wrap(net, groups=groups, **options)
    for fails in (False, False, True, False):
        optimizer.zero_grad()
        if fails and hvd.rank() == 0:
            with pytest.raises(MemoryError):
                net(fails=True).backward()
            optimizer.zero_grad()
            continue
        net().backward()
        if fails:
            with pytest.raises(RuntimeError, match="backward pass failed on rank 0"):
                optimizer.step()
        else:
            optimizer.step()
    assert len({*hvd.allgather_object(tuple(net.tables[1].weight.flatten().tolist()))}) == 1


def failures_of_several_operations():
    tables = ("tables.0.weight", "tables.1.weight")
    failures_are_told(sparse=True, together=tables)
    failures_are_told(sparse=True, together=(*tables, "bias"))
    for compression in (hvd.Compression.int8, hvd.Compression.topk, hvd.Compression.powersgd):
        failures_are_told(compression=compression)
        failures_are_told(compression=compression, together=tables)


class Unwilling(hvd.Compression.fp16):
    """Fails once, on rank 0."""

    left = 0

    @classmethod
    def compress(cls, tensor):
        cls.left -= 1
        if cls.left == 0 and hvd.rank() == 0:
            raise MemoryError("full")
        return super().compress(tensor)


class UnwillingTwice(hvd.Compression.powersgd):
    """Fails once, on rank 0, with a gradient that is not the first."""

    def reduce(self, gradient, name, exchange):
        Unwilling.left -= 1
        if Unwilling.left == 0 and hvd.rank() == 0:
            raise MemoryError("full")
        return (yield from super().reduce(gradient, name, exchange))


def failure_to_send_again():
    """Rank 1 has no gradient of the last layer, and rank 0 cannot send its own when all have heard so."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4, bias=False)])
    optimizer = wrap(layers, compression=Unwilling)
    for fails in (False, True, False):
        optimizer.zero_grad()
        hidden = layers[0](torch.ones(1, 4))
        (hidden if fails and hvd.rank() else layers[1](hidden)).sum().backward()
        Unwilling.left = 2 if fails else 0  # the bias, which is held, and what has left is sent again
        if fails:
            with pytest.raises((MemoryError, RuntimeError), match="could not be submitted"):
                optimizer.step()
        else:
            optimizer.step()
    assert len({*hvd.allgather_object(tuple(layers[1].weight.flatten().tolist()))}) == 1


def failure_to_send(**options):
    """A gradient that one rank cannot compress is sent by none."""
    net = mlp()
    optimizer = wrap(net, **{"compression": Unwilling, **options})
    for fails in (False, True, True, False):
        optimizer.zero_grad()
        Unwilling.left = 2 if fails else 0
        loss_of(net, own_samples()).backward()
        if fails:
            told = "could not be submitted: full" if hvd.rank() == 0 else "could not be submitted on rank 0"
            with pytest.raises(MemoryError if hvd.rank() == 0 else RuntimeError, match=told):
                optimizer.step()
        else:
            optimizer.step()
    assert len({*hvd.allgather_object(tuple(net[2].weight.flatten().tolist()))}) == 1


def failure_to_send_for_another_optimizer():
    """It ends one step, also where the optimizer that steps is not the one that sends."""
    net = mlp()
    optimizer, _newer = (wrap(net, compression=Unwilling) for _ in range(2))
    for fails in (False, True, False):
        net.zero_grad()
        Unwilling.left = 2 if fails else 0
        loss_of(net, own_samples()).backward()
        if fails:
            with pytest.raises(MemoryError if hvd.rank() == 0 else RuntimeError, match="could not be"):
                optimizer.step()
        else:
            optimizer.step()


class Interrupted(hvd.Compression.fp16):
    """As by Ctrl-C in a hook, once, on rank 0."""

    comes = False

    @classmethod
    def compress(cls, tensor):
        if cls.comes and hvd.rank() == 0:
            cls.comes = False
            raise KeyboardInterrupt
        return super().compress(tensor)


def interrupt_in_a_hook():
    net = mlp()
    optimizer = wrap(net, compression=Interrupted)
    for interrupted in (False, True, False):
        optimizer.zero_grad()
        Interrupted.comes = interrupted
        if interrupted:
            with pytest.raises((KeyboardInterrupt, RuntimeError)):
                loss_of(net, own_samples()).backward()
                optimizer.step()
        else:
            loss_of(net, own_samples()).backward()
            optimizer.step()
    assert len({*hvd.allgather_object(tuple(net[2].weight.flatten().tolist()))}) == 1


def ranks_check():
    hvd.init()
    failed_backward_passes()
    failed_backward_pass_of_two_optimizers(1, ["0.weight", "0.bias", "2.weight", "2.bias"])
    failed_backward_pass_of_two_optimizers(None, ["2.weight"])
    failures_of_several_operations()
    failure_to_send()
    failure_to_send(groups=2)
    failure_to_send(groups=1, compression=UnwillingTwice)
    failure_to_send_again()
    interrupt_in_a_hook()
    failure_to_send_for_another_optimizer()
    return True


@pytest.mark.parametrize("ranks", [2, 3])
def test_failures_are_told(run_ranks, ranks):
    assert run_ranks(ranks, ranks_check) == [True] * ranks
