"""What programs do with DistributedOptimizer, in real processes, each compared with one process that has the
data of all ranks.
"""

import copy
import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from training import CLASSES, TOKENS, WIDTH, Tagger, loss_of, mean_loss, mlp, same, samples, sgd, train, wrap

import horovod.torch as hvd


def sparse_gradients():
    """Alone, in groups with dense ones, as dense ones, and with an optimizer that takes only sparse ones."""
    for options in (
        {},
        {"groups": 1},
        {"groups": 2, "gradient_predivide_factor": 2.0},
        {"sparse_as_dense": True, "groups": 2},
        {"compression": hvd.Compression.fp16, "sparse_as_dense": True},
    ):
        net, reference = Tagger(), Tagger()
        optimizer = wrap(net, lambda net: torch.optim.SGD(net.parameters(), lr=0.3), **options)
        alone = torch.optim.SGD(reference.parameters(), lr=0.3)
        tolerance = 1e-2 if "compression" in options else 1e-6
        train(net, optimizer, reference, alone, tokens=True, tolerance=tolerance)
        assert net.words.weight.grad.is_sparse != options.get("sparse_as_dense", False)
    net, reference = nn.Embedding(TOKENS, CLASSES, sparse=True), nn.Embedding(TOKENS, CLASSES, sparse=True)
    reference.load_state_dict(hvd.broadcast_object(net.state_dict(), 0))
    net.load_state_dict(reference.state_dict())
    adam = lambda net: torch.optim.SparseAdam(net.parameters(), lr=0.1)  # noqa: E731
    train(net, wrap(net, adam), reference, adam(reference), tokens=True)


def sparse_on_some_ranks():
    """A parameter whose gradient is sparse on one rank, and absent or dense on another, from the first step
    on.
    """

    def loss(net, batch):
        kind = int(batch[1][0])
        logits = net(batch[0], use_places=kind % 2 == 0)
        penalty = net.words.weight.pow(2).sum() if kind >= 2 else 0.0  # its gradient is dense
        return functional.cross_entropy(logits, batch[1]) + penalty

    for options in ({}, {"groups": 1}, {"groups": 2}):
        net, reference = Tagger(), Tagger()
        base = lambda net: torch.optim.SGD(net.parameters(), lr=0.1)  # noqa: E731
        train(net, wrap(net, base, **options), reference, base(reference), 6, tokens=True, loss=loss)


def no_sync():
    net, reference = mlp(), mlp()
    optimizer, alone = wrap(net), sgd(reference)
    for step in range(3):
        optimizer.zero_grad()
        alone.zero_grad()
        micro = [samples(100 * step + part, hvd.size()) for part in range(3)]
        before = hvd.counters()["tensors"]
        with optimizer.no_sync():
            for batches in micro[:2]:
                loss_of(net, batches[hvd.rank()]).backward()
        assert hvd.counters()["tensors"] == before
        if step < 2:  # the last time, all three stay local, and step reduces the sum
            loss_of(net, micro[2][hvd.rank()]).backward()
        else:
            with optimizer.no_sync():
                loss_of(net, micro[2][hvd.rank()]).backward()
        optimizer.step()
        sum(mean_loss(reference, batches) for batches in micro).backward()
        alone.step()
    same(net, reference)


def several_passes():
    """backward_passes_per_step with every way of travelling."""
    for options in ({}, {"groups": 1}, {"sparse_as_dense": True}, {"compression": hvd.Compression.fp16}):
        for make in (mlp, Tagger):
            net, reference = make(), make()
            optimizer = wrap(net, sgd, backward_passes_per_step=2, **options)
            for step in range(2):
                micro = [samples(10 * step + part, hvd.size(), make is Tagger) for part in range(2)]
                for batches in micro:
                    loss_of(net, batches[hvd.rank()]).backward()
                optimizer.synchronize()
                sum(mean_loss(reference, batches) for batches in micro).backward()
                for mine, theirs in zip(net.parameters(), reference.parameters(), strict=True):
                    difference = (mine.grad - theirs.grad).to_dense().abs().max()
                    assert difference < (1e-2 if "compression" in options else 1e-6)
                net.zero_grad()
                reference.zero_grad()


def grad_scaler():
    """An infinity on one rank leaves out the step on all, and all scales stay equal."""
    net, reference = mlp(), mlp()
    optimizer, alone = wrap(net), sgd(reference)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        batches = samples(step, hvd.size())
        optimizer.zero_grad()
        loss = loss_of(net, batches[hvd.rank()])
        overflows = step in (1, 4)
        if overflows and hvd.rank() == hvd.size() - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if step < 3:
            scaler.step(optimizer)
        else:
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        scaler.update()
        if overflows:
            continue
        alone.zero_grad()
        mean_loss(reference, batches).backward()
        if step >= 3:
            nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        alone.step()
    assert set(hvd.allgather_object(scaler.get_scale())) == {256.0}
    same(net, reference)


def compiled():
    for backend in ("eager", "aot_eager"):
        net, reference = mlp(), mlp()
        optimizer = wrap(net, groups=2)
        train(torch.compile(net, backend=backend), optimizer, reference, sgd(reference))


def schedules():
    """Made on either optimizer, before or after wrapping: no warning, equal rates."""
    net, reference = mlp(), mlp()
    plain, alone = sgd(net), sgd(reference)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = torch.optim.lr_scheduler.StepLR(plain, 2, 0.5)
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
        after = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=9)
        both = [
            torch.optim.lr_scheduler.StepLR(alone, 2, 0.5),
            torch.optim.lr_scheduler.OneCycleLR(alone, 0.3, total_steps=9),
        ]
        for _ in range(4):
            train(net, optimizer, reference, alone, steps=1)
            for schedule in (before, after, *both):
                schedule.step()
    assert optimizer.param_groups[0]["lr"] == alone.param_groups[0]["lr"]
    assert optimizer.param_groups[0]["momentum"] == alone.param_groups[0]["momentum"]


def several_optimizers():
    """Two models with equal names whose gradients travel at once; two optimizers that share parameters."""
    nets, references = (mlp(1), mlp(2)), (mlp(1), mlp(2))
    optimizers, alone = [wrap(net) for net in nets], [sgd(net) for net in references]
    for step in range(3):
        batches = samples(step, hvd.size())
        for one in (*optimizers, *alone):
            one.zero_grad()
        sum(loss_of(net, batches[hvd.rank()]) for net in nets).backward()
        sum(mean_loss(net, batches) for net in references).backward()
        for one in (*optimizers, *alone):
            one.step()
    for net, reference in zip(nets, references, strict=True):
        same(net, reference)
    shared_parameters()


def shared_parameters():
    net, reference = mlp(), mlp()
    adam = lambda net: torch.optim.Adam(net[2].parameters(), lr=0.01)  # noqa: E731
    named = [("2." + name, parameter) for name, parameter in net[2].named_parameters()]
    optimizers = [wrap(net), hvd.DistributedOptimizer(adam(net), named_parameters=named)]
    alone = [sgd(reference), adam(reference)]
    for step in range(6):
        batches = samples(step, hvd.size())
        optimizers[step % 2].zero_grad()
        alone[step % 2].zero_grad()
        loss_of(net, batches[hvd.rank()]).backward()
        mean_loss(reference, batches).backward()
        for which in ((0, 1), (1, 0), (0,), (1,), (0, 1), (1,))[step]:
            optimizers[which].step()
            alone[which].step()
        if step in (3, 5):  # the other's own gradients are still on their way
            optimizers[0].synchronize()
            net.zero_grad()
            reference.zero_grad()
    same(net, reference)


def freezing():
    """One layer is trained from the third step on, another not in the third and fourth of six; in one group
    when ``late``.
    """
    for late in (False, True):
        nets = net, reference = mlp(), mlp()
        for each in nets:
            each[0].requires_grad_(late)
        optimizer, alone = wrap(net, groups=1), sgd(reference)
        for step in range(6):
            for each in nets:
                each[0].requires_grad_(step >= 2)
                each[2].requires_grad_(not 2 <= step < 4)
            train(net, optimizer, reference, alone, steps=1)


def uneven():
    """Ranks with less data join; what they would send counts as zeros, and Average divides by all."""
    for make in (mlp, Tagger):
        net, reference = make(), make()
        base = lambda net: torch.optim.SGD(net.parameters(), lr=0.3)  # noqa: E731
        optimizer, alone = wrap(net, base), base(reference)
        for step in range(hvd.size() + 1):
            batches = samples(step, hvd.size(), make is Tagger)
            active = [rank for rank in range(hvd.size()) if step < 2 + rank]
            if hvd.rank() in active:
                optimizer.zero_grad()
                loss_of(net, batches[hvd.rank()]).backward()
                optimizer.step()
            alone.zero_grad()
            (sum(loss_of(reference, batches[rank]) for rank in active) / hvd.size()).backward()
            alone.step()
        last = hvd.join()
        assert last == hvd.size() - 1
        hvd.broadcast_parameters(net.state_dict(), root_rank=last)
        same(net, reference)


def many_parameters():
    """2,000 small parameters, alone and in groups."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(4)) for _ in range(2000)]
    for groups in (None, 20):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), groups=groups)
        times = []
        for _ in range(4):
            optimizer.zero_grad()
            start = time.perf_counter()
            (torch.cat(parameters) * (1.0 + hvd.rank())).sum().backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        expected = torch.full((4,), (1 + hvd.size()) / 2)
        assert all(torch.equal(parameter.grad, expected) for parameter in parameters)
        print(f"2,000 parameters, groups={groups}: {min(times) * 1e3:.1f} ms a step on rank {hvd.rank()}")
        del optimizer


def compressors():
    """Error feedback makes training with few bytes arrive where training with all of them does."""
    labelled = [(inputs, (inputs[:, :CLASSES]).argmax(1)) for inputs, _ in samples(7, hvd.size())]
    for name in ("int8", "topk", "powersgd"):
        for groups in (None, 2):
            net = mlp()
            optimizer = wrap(net, compression=getattr(hvd.Compression, name), groups=groups)
            for _ in range(60):
                optimizer.zero_grad()
                loss = loss_of(net, labelled[hvd.rank()])
                loss.backward()
                optimizer.step()
            assert loss.item() < 0.1, (name, loss.item())
            same(net, copy.deepcopy(net))


OPTIMIZERS = [
    name for name, base in vars(torch.optim).items() if isinstance(base, type) and name != "Optimizer"
]
VARIANTS = {
    "SGD": [{"momentum": 0.9, "nesterov": True}, {"foreach": True}, {"fused": True}],
    "Adam": [{"amsgrad": True}, {"fused": True}, {"lr": 0.02}],
    "RMSprop": [{"momentum": 0.9, "centered": True}],
    "AdamW": [{"maximize": True}],
}


def matrices(name):
    """A model whose gradients the optimizer takes: sparse ones, or those of matrices."""
    torch.manual_seed(0)
    if name == "SparseAdam":
        return nn.Embedding(TOKENS, CLASSES, sparse=True)
    return nn.Sequential(nn.Linear(WIDTH, 16, bias=False), nn.ReLU(), nn.Linear(16, CLASSES, bias=False))


def states():
    """Rank 0 has trained, the others have not; after the broadcasts all go on as one process would that has.

    For every optimizer of torch, with its options.
    """
    for name in OPTIMIZERS:
        base = getattr(torch.optim, name)
        for options in [{}, *VARIANTS.get(name, [])]:
            options = {"lr": 0.01, **options}
            net, reference = matrices(name), matrices(name)
            plain, alone = (base(each.parameters(), **options) for each in (net, reference))
            if name == "LBFGS":
                with pytest.raises(ValueError, match="LBFGS"):
                    hvd.broadcast_optimizer_state(plain, 0)
                continue
            learned = [(reference, alone), *([(net, plain)] if hvd.rank() == 0 else [])]
            for model, optimizer in learned:
                for step in range(2):
                    optimizer.zero_grad()
                    mean_loss(model, samples(step, 1, name == "SparseAdam")).backward()
                    optimizer.step()
            optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
            hvd.broadcast_parameters(net.state_dict(), 0)
            hvd.broadcast_optimizer_state(optimizer, 0)
            train(net, optimizer, reference, alone, 2, tokens=name == "SparseAdam", tolerance=1e-4)
            optimizer.load_state_dict(copy.deepcopy(alone.state_dict()))
            train(net, optimizer, reference, alone, 1, tokens=name == "SparseAdam", tolerance=1e-4)


class Images(nn.Module):
    """Has gradients that are not contiguous, beside some that are."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, inputs):
        images = inputs.reshape(-1, 2, 2, 2).to(memory_format=torch.channels_last)
        return self.head(self.convolution(images).flatten(1))


class Waves(nn.Module):
    """Has complex gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.waves = nn.Linear(WIDTH, CLASSES, dtype=torch.complex64)

    def forward(self, inputs):
        return self.waves(inputs.to(torch.complex64)).abs()


def gradients_that_need_placing():
    """Those that the core cannot take as they are: nobody has changed them because they were copied."""
    for model in (Images, Waves):
        for options in ({}, {"groups": 1}):
            net, reference = model(), model()
            train(net, wrap(net, **options), reference, sgd(reference), tolerance=1e-5)
    assert not Images().convolution.weight.is_contiguous()


AREAS = {
    "states": (states,),
    "sparse": (sparse_gradients, sparse_on_some_ranks),
    "habits": (no_sync, several_passes, grad_scaler, schedules, freezing, uneven, many_parameters),
    "placed": (gradients_that_need_placing,),
    "several": (several_optimizers, compiled, compressors),
}


def ranks_check(*areas):
    hvd.init()
    for area in areas:
        for check in AREAS[area]:
            check()
            hvd.barrier()
    return hvd.size()


@pytest.mark.parametrize(("ranks", "areas"), [(2, [*AREAS]), (3, ["sparse", "habits"])])
def test_areas(run_ranks, ranks, areas):
    assert run_ranks(ranks, ranks_check, areas) == [ranks] * ranks
