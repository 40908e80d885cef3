"""DistributedOptimizer over the fake core, as one of two ranks: what programs do around it."""

import copy
import gc
import pickle
import warnings

import pytest
import torch
from small_models import backward, model, wrapped
from torch import nn

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError


@pytest.fixture
def two(core):
    """A job of two ranks that send the same."""
    core.size = 2
    return core


def test_clipping_between_synchronize_and_step(two):
    net = model()
    optimizer = wrapped(net)
    backward(net)
    optimizer.synchronize()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    clipped = [parameter.grad.clone() for parameter in net.parameters()]
    with optimizer.skip_synchronize(), warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert len(two.requests) == 4
    for parameter, gradient in zip(net.parameters(), clipped, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_step_after_synchronize_warns_and_reduces_once(two):
    net = model()
    optimizer = wrapped(net, op=hvd.Sum)
    backward(net)
    optimizer.synchronize()
    reduced = net[2].bias.grad.clone()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()
    assert torch.equal(net[2].bias.grad, reduced)
    assert len(two.requests) == 4


def test_closure_is_reduced_after_it_ran(two):
    net, alone = model(), model()
    optimizer = wrapped(net, op=hvd.Sum)

    def closure():
        optimizer.zero_grad()
        backward(net)
        return torch.tensor(7.0)

    assert optimizer.step(closure) == 7
    assert len(two.requests) == 4
    backward(alone)
    assert torch.allclose(net[0].weight.grad, 2 * alone[0].weight.grad)


def test_zero_grad(two):
    net = model()
    optimizer = wrapped(net)
    backward(net)
    with pytest.raises(AssertionError, match="race condition"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert not net[0].weight.grad.any()
    optimizer.zero_grad()
    assert net[0].weight.grad is None


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_gradients_of_any_layout(two, layout):
    parameter = nn.Parameter(torch.zeros(3, 3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    gradient = torch.arange(3.0).reshape(1, 3)
    gradient = gradient.expand(3, 3) if layout == "expanded" else torch.arange(9.0).reshape(3, 3).t()
    parameter.grad = gradient
    optimizer.step()
    assert torch.equal(
        parameter.grad,
        2 * torch.arange(3.0).expand(3, 3)
        if layout == "expanded"
        else 2 * torch.arange(9.0).reshape(3, 3).t(),
    )
    assert torch.equal(parameter, -parameter.grad)


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients(two, as_dense):
    net = nn.Embedding(4, 2, sparse=True)
    optimizer = wrapped(net, sparse_as_dense=as_dense, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.tensor([1, 1])).sum().backward()
        optimizer.step()
        assert net.weight.grad.is_sparse != as_dense
        assert net.weight.grad.to_dense().tolist() == [[0, 0], [4, 4], [0, 0], [0, 0]]
    if not as_dense:
        assert two.requests[-1].tensors[0][3][0] == 1  # one row of the two equal ones


def test_sparse_gradients_have_no_maximum(two):
    net = nn.Embedding(4, 2, sparse=True)
    optimizer = wrapped(net, op=hvd.Max)
    net(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"'weight' is sparse.*hvd\.Max.*sparse_as_dense"):
        optimizer.step()
    net.weight.grad = torch.ones(4, 2)


def test_failure_in_a_hook_is_told_by_synchronize(two):
    class Unwilling(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            if tensor.dim() == 2:
                raise ValueError("no")
            return tensor, None

    net = model()
    optimizer = wrapped(net, compression=Unwilling)
    backward(net)
    with pytest.raises(ValueError, match=r"'0\.weight' could not be submitted: no"):
        optimizer.step()
    assert len(two.requests) == 2
    assert all(request.complete for request in two.requests)


def test_refused_submission_is_told_by_synchronize(two):
    def refuse(request):
        if request.name.endswith("2.weight"):
            raise HorovodInternalError("rank 1 is gone")

    net = model()
    optimizer = wrapped(net)
    two.refuse = refuse
    backward(net)
    with pytest.raises(HorovodInternalError, match=r"'2\.weight'.*rank 1 is gone"):
        optimizer.synchronize()
    assert all(request.complete for request in two.requests)  # the others were waited for
    two.refuse = None
    optimizer.zero_grad()
    backward(net)
    optimizer.step()


def test_alone_nothing_is_sent(core, monkeypatch):
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    net = model()
    optimizer = wrapped(net)
    backward(net)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert core.requests == []
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    net = model()
    optimizer = wrapped(net)
    backward(net)
    optimizer.step()
    assert len(core.requests) == 4


def test_state_dict_and_copies(two):
    net = model()
    optimizer = wrapped(net, torch.optim.Adam)
    backward(net)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    for plain in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(plain) is torch.optim.Adam
        assert str(plain.state_dict()) == str(state)
    backward(net)
    optimizer.load_state_dict(state)  # waits for what is in flight
    assert all(request.complete for request in two.requests)
    assert str(optimizer.state_dict()) == str(state)
    optimizer.zero_grad()
    backward(net)
    optimizer.step()


def test_hooks_end_with_the_optimizer(two):
    net = model()
    wrapped(net)
    gc.collect()
    optimizer = wrapped(net)
    backward(net)
    optimizer.step()
    assert len(two.requests) == 4


def test_schedulers(two):
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=1.0)
    before = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    after = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    backward(net)
    optimizer.step()
    assert len(two.requests) == 4
    after.step()
    assert plain.param_groups[0]["lr"] == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_step_hooks_run_once(two):
    net = model()
    optimizer = wrapped(net)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    backward(net)
    optimizer.step()
    assert calls == ["pre", "post"]
