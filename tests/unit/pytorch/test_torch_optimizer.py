"""DistributedOptimizer over the fake core, as one of two ranks: what it sends."""

import pytest
import torch
from fake_results import AVERAGE, NAMES, SUM
from small_models import backward, model, names_of, wrapped
from torch import nn

import horovod.torch as hvd

PARAMETERS = [
    "2.bias",
    "2.weight",
    "0.bias",
    "0.weight",
]  # in the order in which backward makes their gradients


def test_class_and_sharing(two):
    net = model()
    plain = torch.optim.Adam(net.parameters(), lr=0.25)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.param_groups[0]["lr"] == 0.25
    backward(net)
    optimizer.step()
    assert plain.state is optimizer.state
    assert len(plain.state) == 4


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
def test_same_as_alone_when_all_send_the_same(two, base):
    ours, alone = model(), model()
    optimizer, reference = wrapped(ours, base), base(alone.parameters(), lr=0.1)
    for _ in range(3):
        for net, opt in ((ours, optimizer), (alone, reference)):
            opt.zero_grad()
            backward(net)
            opt.step()
    for mine, theirs in zip(ours.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_gradients_leave_during_backward_under_stable_names(two):
    net = model()
    optimizer = wrapped(net)
    seen = []
    net[0].weight.register_hook(lambda gradient: seen.append(names_of(two)))
    for _ in range(2):
        backward(net)
        optimizer.step()
        optimizer.zero_grad()
    expected = ["DistributedOptimizer." + name for name in PARAMETERS]
    expected = [*expected[1:], expected[0]]  # the smallest is held until the step
    assert names_of(two) == expected * 2
    assert expected[0] in seen[0]  # the first had left before the last gradient existed


def test_step_sees_the_reduced_gradient(two):
    net = model()
    optimizer = wrapped(net, op=hvd.Sum)
    backward(net)
    local = torch.autograd.grad(net(torch.ones(1, 3)).sum(), net[2].bias)[0]
    optimizer.step()
    assert local.shape == net[2].bias.grad.shape
    torch.manual_seed(1)
    alone = model()
    backward(alone)
    assert torch.allclose(net[2].bias.grad, 2 * alone[2].bias.grad)


@pytest.mark.parametrize(
    ("options", "op", "factors"),
    [
        ({}, AVERAGE, (1, 1)),
        ({"op": hvd.Sum}, SUM, (1, 1)),
        ({"gradient_predivide_factor": 4.0}, AVERAGE, (0.25, 4)),
    ],
)
def test_op_and_factors(two, options, op, factors):
    net = model()
    optimizer = wrapped(net, **options)
    backward(net)
    assert {(r.op, r.prescale, r.postscale) for r in two.requests} == {(op, *factors)}
    optimizer.step()


@pytest.mark.parametrize(
    ("compression", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16"), ("none", "float32")]
)
@pytest.mark.parametrize("groups", [None, 2])
def test_compression(two, compression, dtype, groups):
    net, alone = model(), model()
    optimizer = wrapped(net, compression=getattr(hvd.Compression, compression), groups=groups)
    backward(net)
    backward(alone)
    optimizer.synchronize()
    sent = {spec[2] for request in two.requests for spec in request.tensors}
    assert sent == {NAMES.index(dtype)}
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        assert mine.grad.dtype == torch.float32
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-2)


def test_backward_passes_per_step(two):
    net, alone = model(), model()
    optimizer = wrapped(net, backward_passes_per_step=2)
    backward(net)
    assert two.requests == []
    backward(net, 2.0)
    assert len(two.requests) == 3
    optimizer.synchronize()
    backward(alone)
    backward(alone, 2.0)
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad)
    backward(net)
    backward(net)
    with pytest.raises(AssertionError, match=r"'2\.bias'.*backward_passes_per_step"):
        backward(net)
    with pytest.raises(RuntimeError, match=r"'2\.bias' was changed"):  # it was on its way
        optimizer.step()
    two.requests.clear()
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    backward(net)
    two.requests.clear()
    optimizer.step()
    assert len(two.requests) == 1


def test_wrong_arguments(two):
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    named = list(net.named_parameters())
    cases = [
        ({"named_parameters": [p for _, p in named]}, "sequence of tuples"),
        ({"named_parameters": [("same", p) for _, p in named]}, "duplicates: same"),
        ({"named_parameters": named[:3]}, "not named"),
        ({"backward_passes_per_step": 0}, "must be > 0"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op != Average"),
        ({"groups": -1}, "groups"),
        ({"groups": 0.5}, "groups"),
        ({"groups": [net[0].weight]}, "groups"),
        ({"groups": [[net[0].weight], [net[0].weight]]}, "only appear once"),
        ({"op": 9}, "op=9"),
        ({"process_set": hvd.ProcessSet([0])}, "not registered"),
    ]
    for options, text in cases:
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(plain, **options)
    with pytest.raises(TypeError, match="fp16"):
        hvd.DistributedOptimizer(plain, compression={"fp16": True})
    with pytest.raises(TypeError, match="ProcessSet"):
        hvd.DistributedOptimizer(plain, process_set=[0, 1])
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(plain))
    optimizer = hvd.DistributedOptimizer(plain)
    with pytest.raises(ValueError, match="must be > 0"):
        optimizer.set_backward_passes_per_step(0)
    assert optimizer.find_duplicates([1, 2, 1, 3, 3]) == {1, 3}


def test_names_without_named_parameters(two):
    net = model()
    optimizer = wrapped(net, named_parameters=None)
    backward(net)
    optimizer.step()
    assert sorted(names_of(two)) == [f"DistributedOptimizer.noname.0.{index}" for index in range(4)]


@pytest.mark.parametrize("groups", ["number", "lists", "num_groups"])
def test_groups(two, groups):
    net = model()
    if groups == "num_groups":
        with pytest.warns(DeprecationWarning, match="groups"):
            optimizer = wrapped(net, num_groups=2)
    else:
        members = [[net[0].weight, net[2].bias]]
        optimizer = wrapped(net, groups=2 if groups == "number" else members)
    for _ in range(2):
        backward(net)
        optimizer.step()
        optimizer.zero_grad()
    sizes = sorted(len(request.tensors) for request in two.requests)
    assert sizes == ([2, 2] * 2 if groups != "lists" else [1, 1, 1, 1, 2, 2])
    assert len(set(names_of(two))) == len(names_of(two)) // 2


def test_group_of_mixed_types_is_cut(two):
    parameters = [
        nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.float64, torch.float32)
    ]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), groups=1)
    sum(parameter.double().sum() for parameter in parameters).backward()
    optimizer.step()
    assert sorted(len(request.tensors) for request in two.requests) == [1, 2]


@pytest.mark.parametrize("groups", [None, 1])
def test_unused_parameters_are_left_alone(two, groups):
    net, unused = model(), nn.Linear(2, 2)
    both = nn.ModuleList([net, unused])
    optimizer = wrapped(both, groups=groups, inner={"weight_decay": 0.1, "momentum": 0.9})
    before = unused.weight.detach().clone()
    for sent in (4, 2) if groups else (7, 7):  # at first the ranks agree
        two.requests.clear()
        optimizer.zero_grad()
        backward(net)
        optimizer.step()
        assert len(two.requests) == sent
        assert names_of(two)[-1].endswith(".present")
        assert unused.weight.grad is None
        assert torch.equal(unused.weight, before)
        assert unused.weight not in optimizer.state


def test_frozen_parameters_stay_out_until_thawed(two):
    net = model()
    net[0].requires_grad_(False)
    optimizer = wrapped(net)
    backward(net)
    optimizer.step()
    assert len(two.requests) == 2
    assert net[0].weight.grad is None
    net[0].requires_grad_(True)
    two.requests.clear()
    for during, after in ((1, 6), (3, 4)):  # first agreed on and sent by synchronize, then sent by a hook
        backward(net)
        assert len(two.requests) == during
        optimizer.step()
        optimizer.zero_grad()
        assert len(two.requests) == after
        two.requests.clear()
    backward(net)
    assert "DistributedOptimizer.0.weight" in names_of(two)


def test_frozen_later(two):
    net = model()
    optimizer = wrapped(net)
    net[0].requires_grad_(False)
    for sent in (4, 2, 2):  # at first the ranks agree on the two that are frozen
        two.requests.clear()
        optimizer.zero_grad()
        backward(net)
        optimizer.step()
        assert (len(two.requests), net[0].weight.grad) == (sent, None)


def test_frozen_in_a_group(two):
    net = model()
    optimizer = wrapped(net, groups=1)
    net[0].weight.requires_grad_(False)
    for sent in (3, 1, 1):  # at first the ranks agree; then zeros travel for it
        two.requests.clear()
        optimizer.zero_grad()
        backward(net)
        optimizer.step()
        assert (len(two.requests), net[0].weight.grad) == (sent, None)
    net[0].weight.requires_grad_(True)
    backward(net)
    optimizer.step()
    assert net[0].weight.grad is not None


def test_shared_parameter_is_sent_once(two):
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    optimizer = wrapped(net)
    backward(net)
    optimizer.step()
    assert names_of(two) == ["DistributedOptimizer.0.weight"]


@pytest.mark.parametrize("by", ["distributed", "wrapped", "list"])
@pytest.mark.parametrize("named", [False, True])
def test_added_parameters(two, by, named):
    """By either optimizer, whose groups are the same, before the backward pass or after it."""
    for before in (True, False):
        net, head = model(), nn.Linear(2, 1)
        inner = torch.optim.SGD(net.parameters(), lr=1.0)
        names = [*net.named_parameters(), *((f"head.{n}", p) for n, p in head.named_parameters())]
        optimizer = hvd.DistributedOptimizer(inner, names if named else None, op=hvd.Sum)

        def add(net=net, head=head, inner=inner, optimizer=optimizer):
            if by == "list":
                inner.param_groups[0]["params"] += head.parameters()
            else:
                (inner if by == "wrapped" else optimizer).add_param_group({"params": head.parameters()})

        if before:
            add()
        head(net(torch.ones(1, 3))).sum().backward()
        own = head.bias.grad.clone()
        if not before:
            add()
        optimizer.step()
        assert head.bias.grad == 2 * own  # of the two ranks
        two.requests.clear()
        optimizer.zero_grad()
        head(net(torch.ones(1, 3))).sum().backward()
        optimizer.step()
        assert len(two.requests) == 6
        prefix = names_of(two)[0].split(".")[0]
        place = "0.5" if by == "list" else "1.1"
        assert f"{prefix}.{'head.bias' if named else 'noname.' + place}" in names_of(two)
        del optimizer


def test_parameters_added_after_the_reduction_are_refused(two):
    net, head = model(), nn.Linear(2, 1)
    optimizer = wrapped(net)
    head(net(torch.ones(1, 3))).sum().backward()
    optimizer.synchronize()
    optimizer.add_param_group({"params": head.parameters()})
    for _ in range(2):
        with (
            optimizer.skip_synchronize(),
            pytest.raises(RuntimeError, match=r"'noname.1.0' was added.*before the backward pass"),
        ):
            optimizer.step()
    head.zero_grad()
    with optimizer.skip_synchronize():
        optimizer.step()
