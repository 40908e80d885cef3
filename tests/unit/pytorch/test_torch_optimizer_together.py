"""DistributedOptimizer over the fake core: several at once, GradScaler, no_sync, and changes in flight."""

import contextlib
import copy
import gc

import pytest
import torch
from small_models import backward, model, names_of, wrapped
from torch import nn

import horovod.torch as hvd
from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import bucket_owners


def test_equal_names_of_two_models(two):
    nets = model(0), model(1)
    optimizers = [wrapped(net) for net in nets]
    for net in nets:
        backward(net)  # all eight gradients are in flight at once
    for optimizer in optimizers:
        optimizer.step()
    names = names_of(two)
    assert names[0] == "DistributedOptimizer.2.weight"
    assert names[3] == "DistributedOptimizer#2.2.weight"
    assert len(set(names)) == 8
    del optimizer, optimizers
    again = wrapped(nets[1])  # whoever is gone has been counted
    nets[1].zero_grad()
    backward(nets[1])
    again.step()
    assert names_of(two)[8] == "DistributedOptimizer#3.2.weight"


def test_shared_parameters_are_reduced_once(two):
    net, alone = model(), model()
    whole, head = wrapped(net, op=hvd.Sum), wrapped(net[2], op=hvd.Sum)
    optimizers = {"whole": whole, "head": head}
    for order in (("whole", "head"), ("head", "whole")):
        net.zero_grad()
        alone.zero_grad()
        two.requests.clear()
        backward(net)
        for name in order:
            optimizers[name].step()
        assert len(two.requests) == 4
    two.requests.clear()
    net.zero_grad()
    head.step()  # nothing was computed: the ranks agree on it
    assert len(two.requests) == 3


@pytest.mark.parametrize("first", ["whole", "head"])
@pytest.mark.parametrize("thawed", ["after both", "between them"])
def test_shared_parameters_that_are_thawed_are_reduced_once(two, first, thawed):
    net = model()
    net[2].bias.requires_grad_(False)
    optimizers = {"whole": wrapped(net, op=hvd.Sum)}
    net[2].bias.requires_grad_(thawed == "between them")
    optimizers["head"] = wrapped(net[2], op=hvd.Sum)
    net[2].bias.requires_grad_(True)
    for _ in range(2):
        net.zero_grad()
        backward(net)
        own = net[2].bias.grad.clone()
        for name in (first, *(optimizers.keys() - {first})):
            optimizers[name].step()
            assert torch.equal(net[2].bias.grad, 2 * own)


def test_a_rank_without_a_batch_sends_zeros_for_shared_parameters(two):
    net = model()
    optimizers = [wrapped(net), wrapped(net)]
    for _ in range(2):
        optimizers[1].zero_grad()
        backward(net)
        optimizers[1].step()
    two.requests.clear()
    optimizers[1].zero_grad()
    optimizers[1].step()  # as the other rank does, which has made a backward pass
    assert len(two.requests) == 5


def test_shared_parameters_outlive_the_first_optimizer(two):
    net = model()
    first = wrapped(net)
    second = wrapped(net, groups=1)
    del first
    backward(net)
    second.step()
    assert names_of(two) == ["DistributedOptimizer#2.0.weight and 3 more"]
    del second
    net.zero_grad()
    backward(net)
    assert len(two.requests) == 1


def test_shared_parameters_outlive_the_last_optimizer(two):
    net = model()
    first = wrapped(net)
    second = wrapped(net, groups=1)
    del second
    backward(net)
    first.step()
    assert names_of(two) == ["DistributedOptimizer#2.0.weight and 3 more"]
    del first
    net.zero_grad()
    backward(net)
    assert len(two.requests) == 1


def test_newest_optimizer_takes_over_what_another_reduces_otherwise(two):
    net = model()
    whole, head = wrapped(net), wrapped(net[2], op=hvd.Sum)
    backward(net)
    assert len(two.requests) == 1  # of the head alone
    head.step()
    with pytest.raises(RuntimeError, match="made later"):
        whole.step()
    again = wrapped(net)
    net.zero_grad()
    backward(net)
    again.step()
    assert len(two.requests) == 6
    with pytest.raises(RuntimeError, match="made later"):
        head.step()


def test_rewrapping_in_the_middle_of_a_step(two):
    net = model()
    old = wrapped(net)
    backward(net)
    new = wrapped(net, compression=hvd.Compression.fp16)
    assert all(request.complete for request in two.requests)
    new.zero_grad()
    backward(net)
    new.step()
    assert len(two.requests) == 8  # one tells that the first step is given up
    del old


def test_no_sync(two):
    net, alone = model(), model()
    optimizer = wrapped(net, op=hvd.Sum, backward_passes_per_step=2)
    with optimizer.no_sync():
        for _ in range(3):  # do not count
            backward(net)
        with optimizer.no_sync():
            backward(net)
        backward(net)
    backward(net)
    assert two.requests == []
    backward(net)
    assert len(two.requests) == 3
    optimizer.synchronize()
    for _ in range(7):
        backward(alone)
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(mine.grad, 2 * theirs.grad)
    backward(net)
    backward(net)
    with pytest.raises(AssertionError, match="more than"), optimizer.no_sync():
        backward(net)  # into a gradient that is being reduced
    with pytest.raises(RuntimeError, match="was changed"):
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"compression": hvd.Compression.bf16}])
def test_changing_a_gradient_in_flight(two, options):
    net = model()
    optimizer = wrapped(net, **options)
    backward(net)
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    with pytest.raises(RuntimeError, match="was changed between"):
        optimizer.step()
    optimizer.zero_grad()
    backward(net)
    optimizer.synchronize()
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    with optimizer.skip_synchronize():
        optimizer.step()


def test_gradients_in_one_flat_tensor(two):
    net, flat = model(), torch.zeros(26)
    for parameter, part in zip(
        net.parameters(), flat.split([p.numel() for p in net.parameters()]), strict=True
    ):
        parameter.grad = part.view_as(parameter).detach()  # they share one version
    optimizer = wrapped(net, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=False)
        backward(net)
        optimizer.step()
    assert flat[0] == net[0].weight.grad[0, 0] != 0


def infinite_on_the_peer(request, own):
    return [own, [torch.full_like(t, float("inf")) if t.is_floating_point() else t for t in own]]


@pytest.mark.parametrize("explicit", [False, True])
def test_grad_scaler_sees_reduced_gradients(two, explicit, recwarn):
    net, alone = model(), model()
    optimizer, reference = wrapped(net), torch.optim.SGD(alone.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for peers in (None, infinite_on_the_peer, None):
        two.peers = peers
        optimizer.zero_grad()
        reference.zero_grad()
        backward(net, scaler.scale(torch.tensor(1.0)).item())
        if explicit:
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
        backward(alone)
        if peers is None:
            reference.step()
        for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(mine, theirs)
    assert scaler.get_scale() == 2.0
    assert len(two.requests) == 12
    assert not [warning for warning in recwarn if "skip_synchronize" in str(warning.message)]


@pytest.mark.parametrize("way", ["a group that is not full", "no_sync", "no pass on this rank"])
def test_a_step_that_grad_scaler_leaves_out_does_not_count_for_the_next(two, way):
    """Also where the program has the model, and not the optimizer, forget its gradients."""
    net, unused = model(), nn.Parameter(torch.ones(2))
    plain = torch.optim.SGD([*net.parameters(), unused], lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, groups=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    two.peers = infinite_on_the_peer
    backward(net, scaler.scale(torch.tensor(1.0)).item())
    scaler.step(optimizer)
    scaler.update()
    net.zero_grad()
    unused.grad = None
    alone, shares = model(), (0, 4) if way == "no pass on this rank" else (1, 3)
    backward(alone, 2.0)
    theirs = [shares[1] * parameter.grad for parameter in alone.parameters()]

    def peer(request, own):
        if len(own) > 1:
            return [own, [*theirs, torch.zeros(2)]]
        if request.name.endswith(".present"):
            return [own, [torch.tensor([1, 1, 1, 1, 0], dtype=torch.uint8)[-own[0].numel() :]]]
        told = bytes(own[0].flatten().tolist()).replace(b"[0, [[2, 2, 2, 2, 2]", b"[1, [[1, 1, 1, 1, 2]")
        return [own, [torch.tensor(list(told), dtype=torch.uint8).view_as(own[0])]]

    two.peers = peer
    with optimizer.no_sync() if way == "no_sync" else contextlib.nullcontext():
        if shares[0]:
            backward(net, scaler.scale(torch.tensor(1.0)).item())
    scaler.step(optimizer)
    assert torch.allclose(net[0].weight.grad, alone[0].weight.grad)


def test_schedules_of_the_wrapped_optimizer_see_the_step(two, recwarn):
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    backward(net)
    optimizer.step()
    schedule.step()
    assert not recwarn.list


def test_fused_optimizers_tell_grad_scaler(two):
    parameter = nn.Parameter(torch.ones(3))
    plain = torch.optim.SGD([parameter], lr=0.1, fused=True)
    optimizer = hvd.DistributedOptimizer(plain)
    assert optimizer._step_supports_amp_scaling
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizer._step_supports_amp_scaling
    assert not wrapped(model())._step_supports_amp_scaling


def test_adasum_reduces_steps(two):
    """Equal steps of both ranks combine to that step."""
    net, alone = model(), model()
    optimizer = wrapped(net, torch.optim.Adam, op=hvd.Adasum, groups=2, backward_passes_per_step=3)
    reference = torch.optim.Adam(alone.parameters(), lr=0.1)
    for _ in range(2):
        for each, one in ((net, optimizer), (alone, reference)):
            one.zero_grad()
            backward(each)
            assert len(two.requests) % 2 == 0
            one.step()
    assert {request.op for request in two.requests} == {hvd.Adasum}
    assert names_of(two)[:2] == [
        "DistributedOptimizer.adasum.0.weight and 1 more",
        "DistributedOptimizer.adasum.2.weight and 1 more",
    ]
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(mine, theirs)


def test_adasum_keeps_the_parameters_when_it_fails(two):
    def refuse(request):
        if request.name.endswith("2.weight"):
            raise HorovodInternalError("rank 1 is gone")

    net, before = model(), model()
    optimizer = wrapped(net, op=hvd.Adasum)
    two.refuse = refuse
    backward(net)
    with pytest.raises(HorovodInternalError, match="gone"):
        optimizer.step()
    assert all(request.complete for request in two.requests)
    for mine, old in zip(net.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, old)


def test_a_layout_is_agreed_on_once_and_forgotten_with_the_job(two):
    net = nn.Embedding(4, 2, sparse=True)
    optimizer = wrapped(net)
    counts = []
    for step in range(3):
        if step == 2:
            basics.note_join()
        two.requests.clear()
        optimizer.zero_grad()
        net(torch.tensor([1])).sum().backward()
        optimizer.step()
        counts.append(len(two.requests))
    assert counts == [2, 1, 2]


def test_passes_change_for_groups_that_another_optimizer_made(core):
    core.size = 2
    model = torch.nn.Linear(2, 1)
    first = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    second = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    second.set_backward_passes_per_step(2)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    second.step()
    del first


def test_an_optimizer_that_goes_while_another_is_made(two, monkeypatch):
    """Python finds garbage in any line: no other optimizer may be passed over then."""
    gone, net = wrapped(model()), model()
    gone.itself = gone
    first = wrapped(net)
    taken_from = bucket_owners._taken_from

    def after_collecting(*arguments):
        gc.collect()
        return taken_from(*arguments)

    monkeypatch.setattr(bucket_owners, "_taken_from", after_collecting)
    del gone
    second = wrapped(net)
    assert first._buckets == second._buckets and len(second._buckets) == 4
