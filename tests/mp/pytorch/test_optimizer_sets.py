"""DistributedOptimizer over process sets, and with Adasum, in three real processes."""

import numpy as np
import pytest
import torch
from reference import adasum
from torch import nn
from training import Tagger, loss_of, mean_loss, mlp, same, samples, sgd, wrap

import horovod.torch as hvd

PAIR, ALONE, LATER = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1]), hvd.ProcessSet([1, 2])


def train_in(process_set, make=mlp, tokens=False, tolerance=1e-6, **options):
    """The members are equal to one process with their data; every other rank, to itself alone."""
    net, reference = make(), make()
    base = lambda net: torch.optim.SGD(net.parameters(), lr=0.3)  # noqa: E731
    optimizer, alone = wrap(net, base, process_set=process_set, **options), base(reference)
    mine = process_set.ranks if process_set.included() else [hvd.rank()]
    before = hvd.counters()["tensors"]
    for step in range(3):
        batches = samples(10 * step, hvd.size(), tokens)
        optimizer.zero_grad()
        loss_of(net, batches[hvd.rank()]).backward()
        optimizer.step()
        alone.zero_grad()
        mean_loss(reference, [batches[rank] for rank in mine]).backward()
        alone.step()
    assert (hvd.counters()["tensors"] > before) == (len(mine) > 1)
    hvd.barrier()
    if process_set.included():
        same(net, reference, tolerance, process_set)
    else:
        assert all(torch.equal(p, q) for p, q in zip(net.parameters(), reference.parameters(), strict=True))


def sets():
    for process_set in (PAIR, ALONE, LATER):
        train_in(process_set)
    train_in(PAIR, groups=2, gradient_predivide_factor=2.0)
    train_in(LATER, Tagger, tokens=True, groups=1)
    train_in(PAIR, compression=hvd.Compression.bf16, tolerance=1e-2)
    train_in(PAIR, compression=hvd.Compression.int8, tolerance=1e-1)


def overlapping_sets_at_once():
    """One backward pass makes gradients that travel over different sets, and over all ranks."""
    nets = [mlp(seed) for seed in range(3)]
    references = [mlp(seed) for seed in range(3)]
    which = [hvd.global_process_set, PAIR, LATER]
    optimizers = [wrap(net, process_set=process_set) for net, process_set in zip(nets, which, strict=True)]
    alone = [sgd(net) for net in references]
    for step in range(3):
        batches = samples(step, hvd.size())
        for one in (*optimizers, *alone):
            one.zero_grad()
        sum(loss_of(net, batches[hvd.rank()]) for net in nets).backward()
        for reference, process_set in zip(references, which, strict=True):
            mean_loss(reference, [batches[rank] for rank in process_set.ranks]).backward()
        for one in (*optimizers, *alone):
            one.step()
    for net, reference, process_set in zip(nets, references, which, strict=True):
        if process_set.included():
            same(net, reference, process_set=process_set)


def unregistered():
    with pytest.raises(ValueError, match="not registered"):
        wrap(mlp(), process_set=hvd.ProcessSet([0, 1]))


def flat(parameter):
    return parameter.detach().numpy().copy()


class Simulation:
    """Adasum's delta form for all ranks of a set, one optimizer for each, with numpy between the steps."""

    def __init__(self, base, ranks):
        self.nets = {rank: mlp() for rank in ranks}
        self.optimizers = {rank: base(net) for rank, net in self.nets.items()}

    def step(self, step_of):
        """``step_of(rank, net, optimizer)`` makes the local step."""
        lists = [list(net.parameters()) for net in self.nets.values()]
        olds = [flat(parameter) for parameter in lists[0]]
        for rank, net in self.nets.items():
            step_of(rank, net, self.optimizers[rank])
        for index, old in enumerate(olds):
            new = old + adasum([flat(parameters[index]) - old for parameters in lists])
            for parameters in lists:
                with torch.no_grad():
                    parameters[index].copy_(torch.from_numpy(new.astype(np.float32)))


def adasum_steps():
    bases = [sgd, lambda net: torch.optim.Adam(net.parameters(), lr=0.01)]
    for base, options in zip(
        (*bases, *bases),
        ({}, {"groups": 2}, {"process_set": PAIR}, {"backward_passes_per_step": 2}),
        strict=True,
    ):
        members = options.get("process_set", hvd.global_process_set)
        if not members.included():
            continue
        net, simulation = mlp(), Simulation(base, members.ranks)
        optimizer = wrap(net, base, op=hvd.Adasum, **options)
        passes = options.get("backward_passes_per_step", 1)
        for step in range(4):
            batches = samples(step, hvd.size())

            def local(rank, net, optimizer, batches=batches, passes=passes):
                optimizer.zero_grad()
                for _ in range(passes):
                    loss_of(net, batches[rank]).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()

            local(hvd.rank(), net, optimizer)
            simulation.step(local)
        same(net, simulation.nets[members.ranks[0]], 1e-5, members)
    hvd.barrier()


def adasum_with_grad_scaler():
    """A rank with an infinite gradient takes part with zeros: the others' steps count."""
    net, simulation = mlp(), Simulation(sgd, range(hvd.size()))
    optimizer = wrap(net, op=hvd.Adasum)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(4):
        batches = samples(step, hvd.size())
        overflows = {1: 0, 2: 2}.get(step)
        optimizer.zero_grad()
        loss = loss_of(net, batches[hvd.rank()])
        scaler.scale(loss * float("inf") if hvd.rank() == overflows else loss).backward()
        if step > 1:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

        def local(rank, net, optimizer, batches=batches, overflows=overflows):
            optimizer.zero_grad()
            loss_of(net, batches[rank]).backward()
            if rank != overflows:
                optimizer.step()

        simulation.step(local)
    same(net, simulation.nets[0], 1e-5)
    assert scaler.get_scale() == (64.0 if hvd.rank() == 1 else 32.0)


def adasum_habits():
    net = mlp()
    optimizer = wrap(net, op=hvd.Adasum)
    assert type(optimizer).__name__ == "SGD"
    with pytest.raises(AssertionError, match="not supported"):
        optimizer.skip_synchronize()
    with pytest.raises(ValueError, match="predivide"):
        wrap(net, op=hvd.Adasum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="cannot compress"):
        wrap(net, op=hvd.Adasum, compression=hvd.Compression.topk)
    batch = samples(0, hvd.size())[hvd.rank()]

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        return loss

    first = optimizer.step(closure).item()
    assert optimizer.step(closure).item() < first
    optimizer.load_state_dict(optimizer.state_dict())
    tagger = Tagger()
    optimizer = wrap(tagger, op=hvd.Adasum)
    loss_of(tagger, samples(0, hvd.size(), True)[hvd.rank()]).backward()
    before = tagger.head.weight.detach().clone()
    with pytest.raises(ValueError, match=r"'words\.weight' is sparse"):
        optimizer.step()
    assert torch.equal(tagger.head.weight, before)
    used_by_one_rank(Tagger())


def adasum_of_unequal_programs():
    """What one rank alone adds, freezes or cannot send is one error on all, in that step, and no step."""
    last = hvd.rank() == hvd.size() - 1
    net, tagger, late = mlp(), Tagger(), nn.Parameter(torch.ones(3))
    optimizer, taggers = wrap(net, op=hvd.Adasum), wrap(tagger, op=hvd.Adasum)

    def step():
        optimizer.zero_grad()
        (loss_of(net, samples(0, hvd.size())[hvd.rank()]) + late.sum()).backward()
        optimizer.step()

    def step_of_tagger():
        for parameter in tagger.parameters():
            parameter.grad = torch.ones_like(parameter).to_sparse() if last else torch.ones_like(parameter)
        taggers.step()

    def refused(kind, text, step):
        before = [parameter.detach().clone() for parameter in (*net.parameters(), *tagger.parameters())]
        with pytest.raises(kind, match=text) as caught:
            step()
        assert len(set(hvd.allgather_object(str(caught.value)))) == 1
        assert all(map(torch.equal, before, [*net.parameters(), *tagger.parameters()]))

    step()
    if last:
        optimizer.add_param_group({"params": [late]})
    refused(hvd.TensorMismatchError, r"'noname.1.0' \(ranks 0, 1: nothing; rank 2: trained\)", step)
    if not last:
        optimizer.add_param_group({"params": [late]})
    step()
    net[0].bias.requires_grad_(not last)
    net[0].bias.grad = None
    refused(hvd.TensorMismatchError, r"'0.bias' \(ranks 0, 1: trained; rank 2: nothing\)", step)
    net[0].bias.requires_grad_(False)
    step()
    refused(ValueError, "rank 2: The gradient of .* is sparse", step_of_tagger)


def used_by_one_rank(net):
    """The delta of one rank and the zeros of the others are that delta."""
    optimizer = wrap(net, op=hvd.Adasum, sparse_as_dense=True)
    before = net.places.weight.detach().clone()
    tokens, labels = samples(0, hvd.size(), True)[0]
    loss = nn.functional.cross_entropy(net(tokens, use_places=hvd.rank() == 1), labels)
    loss.backward()
    optimizer.step()
    moved = net.places.weight.detach() - before
    everybodys = hvd.allgather(moved[None])
    assert moved.abs().max() > 0
    assert all(torch.equal(moved, other) for other in everybodys)


def ranks_check():
    hvd.init(process_sets=[PAIR, ALONE, LATER])
    for check in (sets, overlapping_sets_at_once, unregistered):
        check()
        hvd.barrier()
    for check in (adasum_steps, adasum_with_grad_scaler, adasum_habits, adasum_of_unequal_programs):
        check()
        hvd.barrier()
    return True


def test_sets_and_adasum(run_ranks):
    assert run_ranks(3, ranks_check) == [True] * 3
