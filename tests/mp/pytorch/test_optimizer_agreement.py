"""What DistributedOptimizer does when the ranks' programs differ, or change under way: one clear error on all
ranks, or training that goes on in step; never a hang and never different models.
"""

import copy
import time

import pytest
import torch
from torch import nn
from training import Tagger, loss_of, mean_loss, mlp, own_samples, same, samples, sgd, train, wrap

import horovod.torch as hvd
from horovod import _core


def told_alike(kind, text, function):
    """Calls ``function`` on all ranks; all raise the same."""
    with pytest.raises(kind, match=text) as caught:
        function()
    texts = hvd.allgather_object(str(caught.value))
    assert len(set(texts)) == 1, texts


def different_at_construction():
    last = hvd.rank() == hvd.size() - 1
    net = mlp()
    for options, text in (
        ({"op": hvd.Sum if last else hvd.Average}, r"op \(.*Average; rank \d: Sum\)"),
        ({"compression": hvd.Compression.fp16 if last else hvd.Compression.none}, "compression"),
        ({"groups": 2 if last else 1}, "group 0"),
        ({"backward_passes_per_step": 1 + last}, r"backward_passes_per_step \(.*1; rank \d: 2\)"),
        ({"op": hvd.Adasum if last else hvd.Average}, r"op \(.*Average; rank \d: Adasum\)"),
        ({"named_parameters": [(f"{name}{last}", p) for name, p in net.named_parameters()]}, "more"),
    ):
        told_alike(hvd.TensorMismatchError, text, lambda options=options: wrap(net, **options))
    net[0].weight.requires_grad_(not last)
    told_alike(hvd.TensorMismatchError, "'0.weight'.*requires_grad=True; rank", lambda: wrap(net))
    larger = nn.Linear(3, 3 + last)
    told_alike(
        hvd.TensorMismatchError, r"float32 \[3, 3\].*; rank \d: float32 \[4, 3\]", lambda: wrap(larger)
    )
    base = (lambda net: torch.optim.Adam(net.parameters())) if last else sgd
    told_alike(hvd.TensorMismatchError, r"the optimizer \(.*SGD; rank \d: Adam\)", lambda: wrap(mlp(), base))
    net, reference = mlp(), mlp()
    train(net, wrap(net), reference, sgd(reference))


def kept_on_one_rank():
    """What a rank has kept or dropped before has no influence on names."""
    kept = []
    for seed in range(3):
        net, reference = mlp(seed), mlp(seed)
        optimizer = wrap(net)
        if hvd.rank() == 0:
            kept.append((net, optimizer))
        elif seed == 1:
            kept.append(copy.deepcopy((net, optimizer)))
        train(net, optimizer, reference, sgd(reference), steps=2)
        del net, optimizer


def wrapped_again():
    """As cells of a notebook that are run again do, with other settings, while the old optimizer is alive."""
    net, reference = mlp(), mlp()
    olds = []
    for options in ({}, {"compression": hvd.Compression.fp16}, {"groups": 2}, {"op": hvd.Sum}, {"groups": 1}):
        olds.append(wrap(net, **options))
    alone = sgd(reference)
    train(net, olds[-1], reference, alone)
    loss_of(net, own_samples()).backward()
    for old in (olds[1], olds[3]):
        told_alike(RuntimeError, "made later", old.step)
    olds[-1].synchronize()


def changed_gradients():
    """In flight they must not be touched; all ranks are told, and nothing is applied."""
    for options in (
        {},
        {"groups": 2},
        {"compression": hvd.Compression.fp16},
        {"backward_passes_per_step": 2},
    ):
        net = mlp()
        optimizer = wrap(net, **options)
        for change in (replace, lambda gradient: gradient.mul_(0.5)):
            before = copy.deepcopy(net)
            for _ in range(options.get("backward_passes_per_step", 1)):
                loss_of(net, own_samples()).backward()
            for parameter in net.parameters():
                parameter.grad = change(parameter.grad)
            told_alike(RuntimeError, "was changed between", optimizer.step)
            same(net, before, 1e-9)
            optimizer.zero_grad()
        loss_of(net, own_samples()).backward()
        optimizer.synchronize()
        net[0].weight.grad = net[0].weight.grad / 2
        with optimizer.skip_synchronize():
            optimizer.step()
        same(net, copy.deepcopy(net))


def changed_behind_torchs_back():
    """Through ``.data`` and NumPy, after they were reduced: small gradients and large ones, in which only the
    largest elements are clipped.
    """
    torch.manual_seed(3)
    changes = [
        lambda gradient: gradient.data.clamp_(-1e-3, 1e-3),
        lambda gradient: gradient.data.mul_(0.999),
        lambda gradient: gradient.numpy().fill(0),
    ]
    for options in ({}, {"groups": 1}):
        net = torch.nn.Sequential(torch.nn.Linear(5, 300), torch.nn.Linear(300, 300))
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = wrap(net, **options)
        for change in changes:
            before = copy.deepcopy(net)
            net(torch.randn(4, 5)).square().sum().backward()
            while any(name.startswith("DistributedOptimizer") for name in _core.in_flight(0)):
                time.sleep(0.001)
            change(net[1].weight.grad)
            told_alike(RuntimeError, r"'1.weight'.* was changed between", optimizer.step)
            same(net, before, 1e-9)
            optimizer.zero_grad()
        net(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
        same(net, copy.deepcopy(net))


def replace(gradient):
    return gradient / 2


def changed_on_one_rank():
    """All are told in the same step, before any of them has made it."""
    net = mlp()
    optimizer = wrap(net)
    loss_of(net, own_samples()).backward()
    if hvd.rank() == 0:
        net[0].weight.grad = net[0].weight.grad / 2
    told_alike(RuntimeError, r"'0.weight' was changed between.*\(on rank 0\)", optimizer.step)


def thawed_and_frozen():
    """In step on all ranks it costs nothing; on one rank it is an error on all."""
    for options in ({}, {"groups": 1}):
        net, reference = mlp(), mlp()
        for each in (net, reference):
            each[0].requires_grad_(False)
        optimizer, alone = wrap(net, **options), sgd(reference)
        for step in range(8):
            for each in (net, reference):
                each[0].requires_grad_(step in (2, 3, 6, 7))
                each[2].weight.requires_grad_(step < 4 or step > 5)
            train(net, optimizer, reference, alone, steps=1)
        if hvd.rank() == 0:
            net[0].weight.requires_grad_(False)
        loss_of(net, own_samples()).backward()
        told_alike(hvd.TensorMismatchError, r"'0\.weight' has rank 0: requires_grad=False", optimizer.step)
        net[0].requires_grad_(False)
        optimizer.zero_grad()
        train(net, optimizer, copy.deepcopy(net), sgd(mlp()), steps=0)
        loss_of(net, own_samples()).backward()
        optimizer.step()
        if hvd.rank() == 0:
            net[0].bias.requires_grad_(True)
        loss_of(net, own_samples()).backward()
        told_alike(hvd.TensorMismatchError, r"begun to train.*rank 0: '0\.bias'", optimizer.step)


def added():
    """Parameters that come by the wrapped optimizer train as all do; on one rank only they are an error on
    all.
    """
    for early in (True, False):
        net, reference = mlp(), mlp()
        inner, alone = (
            torch.optim.SGD(net[0].parameters(), lr=0.3),
            torch.optim.SGD(reference[0].parameters(), lr=0.3),
        )
        optimizer = hvd.DistributedOptimizer(inner, net.named_parameters())
        for step in range(3):
            batches = samples(10 * step, hvd.size())
            optimizer.zero_grad()
            alone.zero_grad()
            reference.zero_grad()
            if early and step == 1:
                inner.add_param_group({"params": net[2].parameters()})
            loss_of(net, batches[hvd.rank()]).backward()
            mean_loss(reference, batches).backward()
            if not early and step == 1:
                inner.add_param_group({"params": net[2].parameters()})
            if step == 1:
                alone.add_param_group({"params": reference[2].parameters()})
            optimizer.step()
            alone.step()
            if step == 0:
                net.zero_grad()  # what had gathered in those that are not trained yet
        same(net, reference)
    net = mlp()
    inner = torch.optim.SGD(net[0].parameters(), lr=0.3)
    optimizer = hvd.DistributedOptimizer(inner, net.named_parameters())
    if hvd.rank() == 0:
        inner.param_groups[0]["params"] += net[2].parameters()
    loss_of(net, own_samples()).backward()
    told_alike(hvd.TensorMismatchError, r"begun to train.*rank 0: '2\.", optimizer.step)


def in_another_order():
    """As of a list made of a set. State goes by name, where names are known."""
    backwards = hvd.rank() == 1
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    parameters = list(net.parameters())[:: -1 if backwards else 1]
    adam = torch.optim.Adam(parameters)
    text = r"'0.weight' \(.*number 0 of group 0.*rank 1: .*number 1 of group 0"
    told_alike(hvd.TensorMismatchError, text, lambda: hvd.DistributedOptimizer(adam, net.named_parameters()))
    if "param_names" not in torch.optim.Adam(net.named_parameters()).param_groups[0]:
        return  # an older torch
    named = list(net.named_parameters())[:: -1 if backwards else 1]
    adam = torch.optim.Adam(named)
    if hvd.rank() == 0:
        net(torch.ones(1, 4)).pow(2).sum().backward()
        adam.step()
    hvd.broadcast_optimizer_state(adam, 0)
    states = {name: adam.state[p]["exp_avg"].tolist() for name, p in named}
    assert len({repr(sorted(theirs.items())) for theirs in hvd.allgather_object(states)}) == 1
    assert adam.param_groups[0]["param_names"] == [name for name, _ in named]


def refused_after_shutdown(net, optimizer):
    """Whether the gradients were still in flight at the shutdown, on all ranks."""
    loss_of(net, own_samples()).backward()
    hvd.shutdown()
    hvd.init()
    try:
        text = str(optimizer.step())
    except hvd.HorovodInternalError as error:
        text = str(error)
    return all("shut down" in each for each in hvd.allgather_object(text))


def next_job():
    """A step whose gradients were in flight at a shutdown is refused; the next job goes on with it."""
    for seed in range(20):  # under load they may all have arrived
        net, reference = mlp(seed), mlp(seed)
        if refused_after_shutdown(net, optimizer := wrap(net)):
            break
    same(net, reference, 1e-9)
    optimizer.zero_grad()
    train(net, optimizer, reference, sgd(reference), steps=2)


def copies():
    net, reference = mlp(), mlp()
    optimizer = wrap(
        net, lambda net: torch.optim.Adam(net.parameters()), groups=[[net[0].weight, net[2].bias]]
    )
    alone = torch.optim.Adam(reference.parameters())
    train(net, optimizer, reference, alone, steps=2)
    kept = copy.deepcopy((net, optimizer)) if hvd.rank() == 0 else None  # as for the best model so far
    pairs = copy.deepcopy((net, optimizer)), copy.deepcopy((reference, alone))
    for mine, theirs in zip((net, *pairs[0]), (reference, *pairs[1]), strict=False):
        assert type(mine).__name__ == type(theirs).__name__
    train(*pairs[0], *pairs[1], steps=2)
    train(net, optimizer, reference, alone, steps=2)
    assert kept is None or type(kept[1]).__name__ == "Adam"


def line_search():
    """All ranks take the same way along the line, though their losses differ."""
    for options in ({"line_search_fn": "strong_wolfe"}, {}):
        nets, calls = (mlp(), mlp()), []
        lbfgs = [torch.optim.LBFGS(net.parameters(), lr=1, max_iter=8, **options) for net in nets]
        optimizer = hvd.DistributedOptimizer(lbfgs[0], named_parameters=nets[0].named_parameters())
        everybodys = samples(3, hvd.size())

        def closure(calls=calls, optimizer=optimizer, net=nets[0]):
            calls.append(1)
            optimizer.zero_grad()
            loss = loss_of(net, own_samples(3))
            loss.backward()
            return loss

        def closure_alone(optimizer=lbfgs[1], net=nets[1], everybodys=everybodys):
            optimizer.zero_grad()
            loss = sum(loss_of(net, each) for each in everybodys) / len(everybodys)
            loss.backward()
            return loss

        for _ in range(2):
            mine, theirs = optimizer.step(closure), lbfgs[1].step(closure_alone)
            assert abs(mine - theirs) < 1e-5
        assert len(set(hvd.allgather_object(len(calls)))) == 1
        same(*nets, 1e-3)


def in_backward():
    """Clipping, unscaling and replacing need no ceremony; each step is that of one process with all data."""
    for options in (
        {},
        {"groups": 1},
        {"compression": hvd.Compression.bf16},
        {"backward_passes_per_step": 2},
    ):
        net, reference = mlp(), mlp()
        optimizer, alone = wrap(net, synchronize_in_backward=True, **options), sgd(reference)
        passes = options.get("backward_passes_per_step", 1)
        for step in range(3):
            micro = [samples(10 * step + part, hvd.size()) for part in range(passes)]
            for each in (optimizer, alone):
                each.zero_grad()
            for batches in micro:
                loss_of(net, batches[hvd.rank()]).backward()
                (sum(loss_of(reference, each) for each in batches) / hvd.size()).backward()
            for each in (net, reference):
                nn.utils.clip_grad_norm_(each.parameters(), 0.1)
                each[2].bias.grad = each[2].bias.grad * 3
            optimizer.step()
            alone.step()
        same(net, reference, 1e-2 if "compression" in options else 1e-6)


def in_backward_with_grad_scaler():
    net, reference = mlp(), mlp()
    optimizer, alone = wrap(net, synchronize_in_backward=True), sgd(reference)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(3):
        batches = samples(step, hvd.size())
        optimizer.zero_grad()
        alone.zero_grad()
        loss = loss_of(net, batches[hvd.rank()])
        overflows = step == 1 and hvd.rank() == 0
        scaler.scale(loss * float("inf") if overflows else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        if step != 1:
            (sum(loss_of(reference, each) for each in batches) / hvd.size()).backward()
            nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
            alone.step()
    assert set(hvd.allgather_object(scaler.get_scale())) == {32.0}
    same(net, reference)


def sparse_adam():
    """It takes sparse gradients only, also when they travel as dense ones."""
    net, reference = Tagger().words, Tagger().words
    adam = lambda net: torch.optim.SparseAdam(net.parameters(), lr=0.1)  # noqa: E731
    optimizer = wrap(net, adam, sparse_as_dense=True)

    def loss(net, batch):
        return net(batch[0]).pow(2).sum()

    train(net, optimizer, reference, adam(reference), tokens=True, loss=loss)
    assert net.weight.grad.is_sparse


def state_of_no_parameter():
    net = mlp()
    optimizer = wrap(net)
    optimizer.state["global"] = {"step": torch.tensor(3.0 + hvd.rank()), "note": f"of rank {hvd.rank()}"}
    if hvd.rank() != 0:
        optimizer.state["mine alone"] = 1
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert set(optimizer.state) == {"global"}
    assert (optimizer.state["global"]["step"].item(), optimizer.state["global"]["note"]) == (3.0, "of rank 0")


CHECKS = {
    "agree": (
        different_at_construction,
        kept_on_one_rank,
        wrapped_again,
        thawed_and_frozen,
        added,
        in_another_order,
    ),
    "change": (changed_gradients, changed_behind_torchs_back, changed_on_one_rank),
    "life": (copies, next_job, state_of_no_parameter),
    "ways": (line_search, in_backward, in_backward_with_grad_scaler, sparse_adam),
}


def ranks_check(*names):
    hvd.init()
    for name in names:
        for check in CHECKS[name]:
            check()
            hvd.barrier()
    return True


@pytest.mark.parametrize(
    ("ranks", "names"), [(2, ["agree", "change"]), (2, ["life", "ways"]), (3, [*CHECKS])]
)
def test_agreement(run_ranks, ranks, names):
    assert run_ranks(ranks, ranks_check, names) == [True] * ranks
