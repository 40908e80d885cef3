"""DistributedOptimizer over the fake core, as one of two ranks: what programs do around it."""

import copy
import gc
import pickle
import warnings

import pytest
import torch
from failing import Unlucky
from small_models import backward, model, names_of, wrapped
from torch import nn

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError


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
    optimizer.zero_grad()  # drops what is being reduced, on all ranks
    assert all(request.complete for request in two.requests)
    assert net[0].weight.grad is None
    backward(net)
    optimizer._wrapped.step()
    with pytest.raises(AssertionError, match="gradients that were not reduced yet"):
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


def test_dense_gradients_lie_in_memory_as_their_parameters(two):
    """A fused step goes through both in the order of their memory."""
    net = nn.Embedding(4, 2, sparse=True)
    net.weight = nn.Parameter(torch.zeros(2, 4).t())
    optimizer = wrapped(net, sparse_as_dense=True, op=hvd.Sum)
    net(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert net.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    assert net.weight.grad.stride() == net.weight.stride() == (1, 4)


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
    assert len(two.requests) == 2 + 2 * 2  # each that could not be sent is told of, and the status asked for
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
    with pytest.warns(UserWarning, match="pickled as the Adam that it wraps.*wrap it again"):
        plain = pickle.loads(pickle.dumps(optimizer))
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


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"op": hvd.Adasum}, {"groups": "lists"}])
def test_a_copy_of_model_and_optimizer_is_distributed(two, options):
    net = model()
    if options.get("groups") == "lists":
        options = {"groups": [[net[0].weight, net[2].bias]]}
    optimizer = wrapped(net, torch.optim.Adam, **options)
    backward(net)
    optimizer.step()
    other, copied = copy.deepcopy((net, optimizer))
    assert str(copied.state_dict()) == str(optimizer.state_dict())
    for each, one in ((net, optimizer), (other, copied)):
        two.requests.clear()
        one.zero_grad()
        backward(each)
        one.step()
        sent = [request.name.rsplit(".", 2)[-2:] for request in two.requests]
        assert sum(len(request.tensors) for request in two.requests) == 4
    assert two.requests[0].name.startswith("DistributedOptimizer#2.")
    assert sent
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_loaded_state_is_shared_with_the_wrapped_optimizer(two):
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(plain, 1, 0.1)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    for one in (optimizer, plain):
        one.load_state_dict(copy.deepcopy(one.state_dict()))
        assert optimizer.param_groups is plain.param_groups
        assert optimizer.state is plain.state
    backward(net)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_asking_for_amp_support_has_no_effect(two):
    net = model()
    optimizer = wrapped(net)
    backward(net)
    assert hasattr(optimizer, "_step_supports_amp_scaling")
    assert not optimizer._step_supports_amp_scaling
    assert not any(request.complete for request in two.requests)
    optimizer.step()
    assert all(request.complete for request in two.requests)


def test_names_that_other_projects_look_for(two):
    net = model()
    optimizer = wrapped(net)
    assert optimizer._parameter_names[net[0].weight] == "0.weight"
    net[0].weight.grad = torch.ones(4, 3)
    handle, context = optimizer._allreduce_grad_async(net[0].weight)
    assert (names_of(two), context) == (["DistributedOptimizer.0.weight"], None)
    assert hvd.synchronize(handle).tolist() == net[0].weight.grad.tolist()
    assert len(optimizer._buckets) == 4
    assert optimizer.backward_passes_per_step == 1
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    adaptive = wrapped(model(), op=hvd.Adasum, backward_passes_per_step=2)
    assert adaptive.backward_passes_per_step == 2


def test_a_failed_backward_pass_is_forgotten_by_zero_grad(two):
    net = model()
    optimizer = wrapped(net)
    with pytest.raises(MemoryError):
        net[2](Unlucky.apply(net[1](net[0](torch.ones(1, 3))))).sum().backward()
    assert len(two.requests) == 1  # of the last layer, less one that is held
    with pytest.raises(AssertionError, match=r"more than.*call optimizer\.zero_grad"):
        backward(net)
    optimizer.zero_grad()
    assert all(request.complete for request in two.requests)
    before = len(two.requests)
    backward(net)
    optimizer.step()
    assert len(two.requests) == before + 4


def test_zero_grad_between_passes_begins_again(two):
    net = model()
    optimizer = wrapped(net, backward_passes_per_step=2)
    backward(net)
    optimizer.zero_grad()
    backward(net)
    assert two.requests == []
    backward(net)
    assert len(two.requests) == 3
    optimizer.step()


def test_a_copy_expects_the_passes_that_were_set_later(two):
    net = model()
    optimizer = wrapped(net)
    optimizer.set_backward_passes_per_step(2)
    net, optimizer = copy.deepcopy((net, optimizer))
    backward(net)
    assert two.requests == []
    backward(net)
    assert len(two.requests) >= 3
    optimizer.step()
    assert optimizer.backward_passes_per_step == 2


def test_sparse_adam_with_sparse_as_dense(two):
    net = nn.Embedding(4, 2, sparse=True)
    optimizer = wrapped(net, torch.optim.SparseAdam, sparse_as_dense=True)
    for words in ([1, 1], [2]):
        optimizer.zero_grad()
        net(torch.tensor(words)).sum().backward()
        optimizer.step()
        assert net.weight.grad.is_sparse
        assert net.weight.grad.indices().tolist() == [[words[0]]]
    assert {request.tensors[0][3] for request in two.requests} == {(4, 2)}


def test_common_loss_of_lbfgs(two):
    net = model()
    optimizer = wrapped(net, torch.optim.LBFGS, op=hvd.Sum)

    def closure():
        optimizer.zero_grad()
        backward(net)
        return torch.tensor(3.0)

    assert optimizer.step(closure).item() == 6
    assert "DistributedOptimizer.loss" in names_of(two)


def test_lazy_layers_are_refused_with_the_remedy(core):
    model = torch.nn.LazyLinear(2)
    for named in (None, model.named_parameters()):
        with pytest.raises(ValueError, match="send one batch through it first"):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named)


def test_other_packages_see_whose_class_an_optimizer_has(core):
    """Some look for the name of the package in it, so as not to wrap it twice."""
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert "horovod" in str(optimizer.__class__)
