"""Steps out of the ordinary: gradients that no rank has, that one rank alone changes or drops, loops of two
optimizers, and steps of several evaluations. The ranks go on with equal parameters.
"""

import itertools

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import horovod.torch as hvd
from horovod.common.exceptions import TensorMismatchError


def linear(**options):
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    torch.manual_seed(hvd.rank() + 1)
    return net, hvd.DistributedOptimizer(inner, net.named_parameters(), **options)


def backward(net):
    net(torch.randn(8, 4)).square().mean().backward()


def assert_equal(*nets):
    weights = torch.cat([p.detach().flatten() for net in nets for p in net.parameters()])
    assert len({*hvd.allgather_object(tuple(weights.tolist()))}) == 1


def one_rank_alone(by, match):
    """All ranks raise in the same step, and no rank makes it."""
    net, optimizer = linear()
    for number in range(3):
        optimizer.zero_grad()
        backward(net)
        if number == 1:
            with pytest.raises(RuntimeError, match=match):
                if hvd.rank() == 0:
                    by(net, optimizer)
                optimizer.step()
        else:
            optimizer.step()
    assert_equal(net)


def gradients_of_some_ranks():
    """A parameter that one rank uses, one that each uses at times, and one that nobody uses."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
    before = layers[3].weight.detach().clone()
    for groups in (None, [list(layers[2].parameters()), list(layers[3].parameters())]):
        inner = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        optimizer = hvd.DistributedOptimizer(inner, layers.named_parameters(), groups=groups, op=hvd.Sum)
        for number in range(4):
            optimizer.zero_grad()
            used = [layers[0]] + [layers[1]] * (hvd.rank() == 0) + [layers[2]] * (number == hvd.rank())
            sum(layer(torch.ones(1, 3)).sum() for layer in used).backward()
            optimizer.step()
            assert layers[1].weight.grad[0, 0] == 1
            assert layers[0].weight.grad[0, 0] == hvd.size()
            assert (layers[2].weight.grad is None) == (number >= hvd.size())
            assert layers[3].weight.grad is None
    assert torch.equal(layers[3].weight, before)
    assert_equal(layers)


def loops_of_two_optimizers(by_model, **options):
    (made, maker), (judge, critic) = linear(**options), linear(**options)
    made, judge = nn.Sequential(made), judge
    for _ in range(3):
        (judge if by_model else critic).zero_grad()
        (judge(torch.randn(8, 4)) - judge(made(torch.randn(8, 4)).detach().expand(8, 4))).mean().backward()
        critic.step()
        maker.zero_grad()
        judge(made(torch.randn(8, 4)).expand(8, 4)).mean().backward()
        maker.step()
    assert_equal(made, judge)


class TwoSteps(torch.optim.SGD):
    """As sharpness-aware minimization: a step along one gradient, back, and one along another."""

    @torch.no_grad()
    def first_step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["old"] = p.clone()
            p.add_(p.grad)

    @torch.no_grad()
    def second_step(self):
        for p in self.param_groups[0]["params"]:
            p.copy_(self.state[p]["old"])
            p.sub_(p.grad, alpha=0.1)


def steps_of_two_evaluations():
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(TwoSteps(net.parameters(), lr=0.1), net.named_parameters())
    torch.manual_seed(hvd.rank() + 1)
    for _ in range(3):
        backward(net)
        optimizer.first_step()
        assert_equal(net)
        optimizer.zero_grad()
        backward(net)
        optimizer.second_step()
        optimizer.zero_grad()
    assert_equal(net)


def layers_of_two_passes():
    """Of one step; or the first pass is dropped by the model, and the second reaches another layer first."""
    for by_model, groups in itertools.product((False, True), (None, 1)):
        torch.manual_seed(0)
        first, second = net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, net.named_parameters(), op=hvd.Sum, groups=groups)
        for _ in range(3):
            optimizer.zero_grad()
            first(torch.ones(1, 3)).sum().backward()
            if by_model:
                net.zero_grad()
                net(torch.ones(1, 3)).sum().backward()
            else:
                second(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            assert torch.equal(second.bias.grad, torch.full((3,), float(hvd.size())))
            assert by_model or torch.equal(first.bias.grad, second.bias.grad)
            assert_equal(net)


def state_of_one_rank():
    """Before the first step it is made on that rank alone, and training begins without it."""
    net, optimizer = linear()
    if hvd.rank() == 0:
        assert get_optimizer_state_dict(net, optimizer)["state"]
    backward(net)
    optimizer.step()
    assert_equal(net)


def gradients_that_hooks_take():
    """A hook of the program drops them as soon as they are made: on all ranks, or on one."""
    net, takers = nn.Linear(4, 1), ()
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda each: setattr(each, "grad", None) if hvd.rank() in takers else None
        )
    hvd.broadcast_parameters(net.state_dict(), 0)
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, net.named_parameters())
    everybody = range(hvd.size())
    for takers in ((), everybody, everybody, (1,), everybody):
        optimizer.zero_grad()
        backward(net)
        optimizer.step()
        assert {p.grad is None for p in net.parameters()} == {takers is everybody}
        assert_equal(net)


def nothing_is_trained():
    """Then no gradient travels. When one rank alone begins to train, all hear of it; together they go on."""
    net, optimizer = linear()
    inputs = torch.ones(2, 4, requires_grad=True)

    def step():
        optimizer.zero_grad()
        net(inputs * (1 + hvd.rank())).sum().backward()
        optimizer.step()

    step()
    for late in (net.bias, nn.Parameter(torch.ones(4))):
        net.requires_grad_(False)
        for _ in range(3):
            step()
        if late is net.bias:
            late.requires_grad_(hvd.rank() == 0)
        elif hvd.rank() == 0:
            optimizer.add_param_group({"params": [late]})
        with pytest.raises(hvd.TensorMismatchError, match=r"begun to train.*rank 0: '.*: none") as caught:
            step()
        assert len({*hvd.allgather_object(str(caught.value))}) == 1
        if late is net.bias:
            net.requires_grad_(True)
            step()
            step()
    assert_equal(net)


def thawed_in_another_order_than_on_a_new_rank(monkeypatch):
    """An elastic job: the last layers were thawed one by one before the last rank came. Gradients that no
    rank has are those of the same layer everywhere.
    """
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")

    def layers_and_optimizer(frozen):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        for layer in frozen:
            layers[layer].requires_grad_(False)
        inner = torch.optim.SGD(layers.parameters(), lr=0.1, weight_decay=0.1)
        return layers, hvd.DistributedOptimizer(inner, layers.named_parameters())

    def step(used):
        optimizer.zero_grad()
        sum(layers[layer](torch.ones(1, 3)).sum() for layer in used).backward()
        optimizer.step()

    layers, optimizer = layers_and_optimizer(frozen=(0, 1))
    step((2,))
    for thawed in (1, 0):
        layers[thawed].requires_grad_(True)
        step(range(thawed, 3))
    weights = layers.state_dict()
    hvd.shutdown()
    hvd.init()
    if hvd.rank() == hvd.size() - 1:
        layers, optimizer = layers_and_optimizer(frozen=())
        layers.load_state_dict(weights)
    is_first = hvd.rank() == 0
    step((1, 2) if is_first else (0, 1, 2))
    for used in ((1, 2) if is_first else (0, 2), (0, 2)):
        step(used)
    assert layers[1].weight.grad is None
    assert layers[0].weight.grad is not None
    assert_equal(layers)


def group_that_is_whole_on_a_new_rank(monkeypatch):
    """An elastic job: a group was frozen, and thawed layer by layer, before the last rank came, where its
    gradients travel together. All ranks hear which group it is, and nobody waits.
    """
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")

    def layers_and_optimizer():
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        inner = torch.optim.SGD(layers.parameters(), lr=0.1)
        group = [layers[0].weight, layers[1].weight]
        return layers, hvd.DistributedOptimizer(inner, layers.named_parameters(), groups=[group])

    def step(trained):
        for place, layer in enumerate(layers):
            layer.requires_grad_(place in trained)
        optimizer.zero_grad()
        sum(layer(torch.ones(1, 3)).sum() for layer in layers).backward()
        optimizer.step()

    layers, optimizer = layers_and_optimizer()
    for trained in ((0, 1, 2), (2,), (1, 2), (0, 1, 2)):
        step(trained)
    hvd.shutdown()
    hvd.init()
    if hvd.rank() == hvd.size() - 1:
        layers, optimizer = layers_and_optimizer()
    with pytest.raises(TensorMismatchError, match=r"group 0.*0\.weight, 1\.weight"):
        step((0, 1, 2))


def ranks_check():
    hvd.init()
    one_rank_alone(lambda net, _: net.weight.grad.mul_(0.5), r"'weight' was changed.*on rank 0")
    one_rank_alone(lambda net, _: net.bias.grad.mul_(0.5), r"'bias' was changed.*on rank 0")
    one_rank_alone(lambda _, optimizer: optimizer.zero_grad(), r"zero_grad\(\) was called.*on rank 0")
    gradients_of_some_ranks()
    for by_model in (False, True):
        loops_of_two_optimizers(by_model)
        loops_of_two_optimizers(by_model, groups=1)
        loops_of_two_optimizers(by_model, synchronize_in_backward=True)
    steps_of_two_evaluations()
    layers_of_two_passes()
    state_of_one_rank()
    nothing_is_trained()
    gradients_that_hooks_take()
    with pytest.MonkeyPatch.context() as monkeypatch:
        thawed_in_another_order_than_on_a_new_rank(monkeypatch)
        group_that_is_whole_on_a_new_rank(monkeypatch)
    return True


@pytest.mark.parametrize("ranks", [2, 3])
def test_unusual_steps(run_ranks, ranks):
    assert run_ranks(ranks, ranks_check) == [True] * ranks
