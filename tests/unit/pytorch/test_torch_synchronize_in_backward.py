"""DistributedOptimizer(synchronize_in_backward=True) over the fake core, as one of two ranks."""

import copy
import gc
import threading
import warnings

import pytest
import torch
from small_models import backward, model, wrapped
from torch import nn

import horovod.torch as hvd


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"backward_passes_per_step": 2}])
def test_synchronizing_in_the_backward_pass(two, options):
    """Clipping, unscaling and replacing gradients need no ceremony."""
    net, unused = model(), nn.Linear(2, 2)
    optimizer = wrapped(nn.ModuleList([net, unused]), op=hvd.Sum, synchronize_in_backward=True, **options)
    passes = options.get("backward_passes_per_step", 1)
    for _ in range(2):
        optimizer.zero_grad()
        two.requests.clear()
        for _ in range(passes):
            assert two.requests == []
            backward(net)
        assert two.requests
        assert all(request.complete for request in two.requests)
        alone = copy.deepcopy(net)
        alone.zero_grad()
        for _ in range(passes):
            backward(alone)
        assert torch.allclose(net[0].weight.grad, 2 * alone[0].weight.grad)
        net[0].weight.grad = net[0].weight.grad / 2
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()


def test_synchronizing_again_after_the_backward_pass(two):
    """A program that did it before may go on doing it: a sum is not added up once more."""
    net, alone = model(), model()
    optimizer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True)
    backward(alone)
    for number in (1, 2):
        optimizer.zero_grad()
        net.load_state_dict(alone.state_dict())
        backward(net)
        optimizer.synchronize()
        assert torch.allclose(net[0].weight.grad, 2 * alone[0].weight.grad)
        with optimizer.skip_synchronize():
            optimizer.step()
        assert len(two.requests) == 4 * number


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
@pytest.mark.parametrize(
    "parts", [(slice(None), slice(None)), (slice(1), slice(2, None))], ids=["same", "others"]
)
def test_several_backward_passes_of_one_step(two, op, parts):
    """An average of averages is that of all passes; a sum of sums is something else."""
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    optimizer = wrapped(net, op=op, synchronize_in_backward=True)

    def passes(model, between=lambda: None):
        for part in parts:
            between()
            model[part](torch.ones(1, 3)).sum().backward()

    alone = copy.deepcopy(net)
    passes(alone)
    if op == hvd.Average:
        passes(net)
        assert torch.allclose(net[0].weight.grad, alone[0].weight.grad)
    else:
        with pytest.raises(AssertionError, match=r"reduced by op=hvd\.Sum, which would be reduced once more"):
            passes(net)
    optimizer.zero_grad()
    for to_none in (True, parts[0] != parts[1]):
        passes(net, lambda to_none=to_none: net.zero_grad(set_to_none=to_none))
        optimizer.step()
        optimizer.zero_grad()


def test_several_reductions_of_one_step_with_passes_between_them(two):
    """However many passes were added without a reduction, a sum is not reduced again."""
    net = model()
    optimizer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True, backward_passes_per_step=2)
    for _ in range(3):
        backward(net)
    with pytest.raises(AssertionError, match="once more"):
        backward(net)

    net = model()
    optimizer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True)
    backward(net)
    with optimizer.no_sync():
        backward(net)
    with pytest.raises(AssertionError, match="once more"):
        backward(net)


def test_zeros_in_place_of_a_sum_that_is_dropped(two):
    """A pass that then leaves a part of the model out adds to nothing."""
    net = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    optimizer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True)
    sum(layer(torch.ones(1, 3)).sum() for layer in net).backward()
    net.zero_grad(set_to_none=False)
    net[0](torch.ones(1, 3)).sum().backward()
    assert torch.equal(net[0].bias.grad, torch.full((3,), 2.0))
    optimizer.step()


def test_an_optimizer_goes_on_to_wait_when_a_newer_one_is_gone(two):
    net = model()
    optimizer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True)
    newer = wrapped(net, op=hvd.Sum, synchronize_in_backward=True)
    del newer
    gc.collect()
    for _ in range(2):
        alone = copy.deepcopy(net)
        alone.zero_grad()
        backward(alone)
        backward(net)
        assert torch.allclose(net[0].weight.grad, 2 * alone[0].weight.grad)
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()


def test_synchronizing_in_the_backward_pass_with_checkpoints(two):
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])
    optimizer = wrapped(net, synchronize_in_backward=True)
    hidden = torch.utils.checkpoint.checkpoint(net[1], net[0](torch.ones(1, 3)), use_reentrant=True)
    hidden.sum().backward()  # the first gradients are those of the inner pass
    assert len(two.requests) == 7  # one says who has gradients of the last layer
    assert all(request.complete for request in two.requests)
    optimizer.step()
    assert len(two.requests) == 7


def test_synchronizing_in_the_backward_pass_of_a_model_of_checkpoints(two):
    """All gradients are those of the inner pass."""
    net = model()
    optimizer = wrapped(net, synchronize_in_backward=True)
    inputs = torch.ones(1, 3, requires_grad=True)
    for _ in range(2):
        two.requests.clear()
        torch.utils.checkpoint.checkpoint(net, inputs, use_reentrant=True).sum().backward()
        assert len(two.requests) == 4
        assert all(request.complete for request in two.requests)
        optimizer.step()
        optimizer.zero_grad()


class Interruption(nn.Module):
    """The identity, in whose backward pass something else happens."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, inputs):
        output = inputs.clone()
        output.register_hook(lambda _: self.act())
        return output


def test_another_thread_ends_its_own_backward_pass_only(two):
    """The pass of the one comes to its end while that of the other is half way."""
    first, second = model(), model()
    optimizers = [wrapped(net, op=hvd.Sum, synchronize_in_backward=True) for net in (first, second)]
    loss_of_second = second(torch.ones(1, 3)).sum()

    def train_second():
        thread = threading.Thread(target=loss_of_second.backward)
        thread.start()
        thread.join()

    loss = nn.Sequential(first[0], Interruption(train_second), *first[1:])(torch.ones(1, 3)).sum()
    loss.backward()
    for net in (first, second):
        alone = copy.deepcopy(net)
        alone.zero_grad()
        alone(torch.ones(1, 3)).sum().backward()
        for got, expected in zip(net.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(got.grad, 2 * expected.grad)
    assert all(request.complete for request in two.requests)
    for optimizer in optimizers:
        optimizer.step()
    assert len(two.requests) == 8


def test_synchronizing_in_the_backward_pass_by_the_environment(two, monkeypatch):
    monkeypatch.setenv("HOROVOD_SYNCHRONIZE_IN_BACKWARD", "1")
    net = model()
    optimizer = wrapped(net)
    backward(net)
    assert [request.complete for request in two.requests] == [True] * 4
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
