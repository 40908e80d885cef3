"""Steps that the program leaves out after the backward pass: on one rank by mistake, or on all of them; and
steps that a rank misses because it has joined.
Nobody waits for what another rank will not send, and training goes on with equal parameters.
"""

import gc

import pytest
import torch
from torch import nn

import horovod.torch as hvd


def layers_and_optimizer(*used_by):
    """Some layers of equal size, and an optimizer of all of them; or of those ``used_by`` each of several."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    trained = [layers, *(layers[place] for place in used_by)]
    return layers, *(hvd.DistributedOptimizer(torch.optim.SGD(each.parameters(), lr=0.1)) for each in trained)


def backward(layers):
    sum(layer(torch.ones(1, 3) * (1 + hvd.rank())).sum() for layer in layers).backward()


def assert_equal(layers):
    weights = torch.cat([p.detach().flatten() for p in layers.parameters()])
    assert len({*hvd.allgather_object(tuple(weights.tolist()))}) == 1


def dropped_by_one_rank_before_anything_is_known():
    """Also a bucket that every rank withholds: no rank has used the second layer."""
    hvd.init()
    layers, optimizer = layers_and_optimizer()
    backward(layers[:1])
    with pytest.raises(RuntimeError, match=r"zero_grad\(\) was called.*on rank 0"):
        (optimizer.zero_grad if hvd.rank() == 0 else optimizer.step)()
    optimizer.zero_grad()
    for _ in range(2):
        backward(layers)
        optimizer.step()
        optimizer.zero_grad()
    assert_equal(layers)


def dropped_by_one_rank_of_two_optimizers():
    hvd.init()
    layers, whole, _ = layers_and_optimizer(1)
    backward(layers)
    with pytest.raises(RuntimeError, match=r"zero_grad\(\) was called.*on rank 0"):
        (whole.zero_grad if hvd.rank() == 0 else whole.step)()
    whole.zero_grad()
    backward(layers)
    whole.step()
    assert_equal(layers)


def dropped_by_all_ranks_of_two_optimizers():
    """What was dropped was not reduced, though a rank without a gradient cannot tell by itself."""
    hvd.init()
    layers, whole, head = layers_and_optimizer(1)
    for number in range(3):
        whole.zero_grad()
        head.zero_grad()
        backward(layers[:1] if number == 2 and hvd.rank() == 0 else layers)
        if number == 1:
            continue
        whole.step()
        head.step()
    assert_equal(layers)


def table_of_two_kinds():
    """A table whose gradient is withheld on the rank where it is sparse, and has left on the others."""
    torch.manual_seed(0)
    table = nn.Embedding(4, 2)
    inner = torch.optim.SGD(table.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner)

    def step_begins(is_sparse):
        optimizer.zero_grad()
        table.sparse = is_sparse and hvd.rank() == 0
        table(torch.tensor([1, 2])).sum().backward()

    step_begins(False)
    optimizer.step()
    step_begins(True)
    return table, inner, optimizer


def rolled_back():
    hvd.init()
    table, _, optimizer = table_of_two_kinds()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert_equal(table)


def made_again():
    hvd.init()
    table, inner, optimizer = table_of_two_kinds()
    again = hvd.DistributedOptimizer(inner)
    del optimizer
    again.zero_grad()
    table(torch.tensor([1])).sum().backward()
    again.step()
    assert_equal(table)


def learnt_by_one_rank_while_the_other_has_joined():
    """An absent gradient, a sparse one, and a layer that is trained no longer or again."""
    hvd.init()
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Embedding(4, 3), *(nn.Linear(3, 3) for _ in range(3))])
    table, unused, freezing, thawing = layers
    thawing.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.1))

    def step(used):
        optimizer.zero_grad()
        sum(layer(table(torch.tensor([1, 2]))).sum() for layer in used).backward()
        optimizer.step()

    step((unused, freezing))
    if hvd.rank() == 0:
        table.sparse = True
        step((freezing,))
    table.sparse = True
    freezing.requires_grad_(False)
    thawing.requires_grad_(True)
    if hvd.rank() == 0:
        step((unused, thawing))
    last = hvd.join()
    hvd.broadcast_parameters(layers.state_dict(), last)
    for used in ((unused, thawing), (thawing,), (unused, thawing)):
        step(used)
        assert_equal(layers)


def layer_that_only_one_rank_used(end_step):
    """Its gradient has left there and not on the other rank, when ``end_step`` ends the step."""
    hvd.init()
    layers, optimizer = layers_and_optimizer()
    backward(layers)
    optimizer.step()
    optimizer.zero_grad()
    backward(layers if hvd.rank() else layers[:1])
    optimizer = end_step(optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        backward(layers)
        optimizer.step()
    assert_equal(layers)


def rolled_back_where_one_rank_used_a_layer():
    def load(optimizer):
        optimizer.load_state_dict(optimizer.state_dict())
        return optimizer

    layer_that_only_one_rank_used(load)


def made_again_where_one_rank_used_a_layer():
    layer_that_only_one_rank_used(lambda optimizer: hvd.DistributedOptimizer(optimizer._wrapped))


def optimizers_of_common_layers_in_turns(whole_first, sparse=False, **options):
    """What the one leaves out is no part of a step of the other, which moves some of the same layers."""
    hvd.init()

    def trained(wrap, own_ranks):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Embedding(3, 3, sparse=sparse), nn.Linear(3, 3)])
        parts = {"whole": layers, "head": layers[1]}
        order = ("whole", "head") if whole_first else ("head", "whole")
        optimizers = {name: wrap(torch.optim.SGD(parts[name].parameters(), lr=0.1)) for name in order}
        for name in ("head", "head", "whole", "whole", "head", "whole"):
            layers.zero_grad()
            losses = [nn.Sequential(*layers)(torch.tensor([0, rank])).tanh().sum() for rank in own_ranks]
            (sum(losses) / len(own_ranks)).backward()
            optimizers[name].step()
        return torch.cat([p.detach().flatten() for p in layers.parameters()])

    alone = trained(lambda optimizer: optimizer, range(hvd.size()))
    together = trained(lambda optimizer: hvd.DistributedOptimizer(optimizer, **options), [hvd.rank()])
    assert torch.allclose(together, alone)


def whole_before_head_in_turns():
    optimizers_of_common_layers_in_turns(True)


def head_before_whole_in_turns():
    optimizers_of_common_layers_in_turns(False)


def compressed_gradients_in_turns():
    optimizers_of_common_layers_in_turns(True, compression=hvd.Compression.topk.configure(ratio=1.0))


def sparse_gradients_in_turns():
    optimizers_of_common_layers_in_turns(False, sparse=True)


def dropped_when_the_newer_of_two_optimizers_is_gone():
    hvd.init()
    for by_model in (True, False):
        layers, whole, head = layers_and_optimizer(1)
        del head
        for number in range(5):
            (layers if by_model else whole).zero_grad()
            backward(layers)
            if number in (2, 4):
                whole.step()
        assert_equal(layers)


def first_sparse_gradients_that_all_ranks_drop():
    """They are news when they are dropped: what the next pass has made by then is no part of them."""
    hvd.init()
    for has_head in (False, True):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Embedding(rows, 2, sparse=True) for rows in (4, 3)])
        layers.extend([nn.Linear(2, 2)] * has_head)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.0), op=hvd.Sum)
        for number in range(3):
            layers.zero_grad()
            sums = layers[0](torch.tensor([1, 2])) + layers[1](torch.tensor([1, 2]))
            (layers[2](sums) if has_head else sums).sum().backward()
            if number > 0:
                alone = layers[2].weight.sum(0).detach() if has_head else torch.ones(2)
                optimizer.step()
                for layer in layers[:2]:
                    assert torch.allclose(layer.weight.grad.to_dense()[1], hvd.size() * alone)


class Training:
    """Refers to itself, so that its optimizer lives until Python finds the garbage."""

    def __init__(self, layers):
        self.itself = self
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.1))


def garbage_found_by_one_rank(is_left_out):
    """Ranks find it at different times; where it lives on it must not wait for what the others lack."""
    hvd.init()
    gc.disable()
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    hvd.broadcast_parameters(layers.state_dict(), root_rank=0)
    training = Training(layers)
    backward(layers)
    if not is_left_out:
        training.optimizer.step()
    del training
    if hvd.rank() == 0:
        gc.collect()
    head = Training(layers if is_left_out else layers[1])
    for _ in range(2):
        layers.zero_grad()
        backward(layers)
        head.optimizer.step()
    assert_equal(layers if is_left_out else layers[1])


def garbage_after_a_step_left_out():
    garbage_found_by_one_rank(True)


def garbage_that_trained_what_is_not_trained_now():
    garbage_found_by_one_rank(False)


@pytest.mark.parametrize(
    "check",
    [
        dropped_by_one_rank_before_anything_is_known,
        dropped_by_one_rank_of_two_optimizers,
        dropped_by_all_ranks_of_two_optimizers,
        learnt_by_one_rank_while_the_other_has_joined,
        rolled_back,
        made_again,
        rolled_back_where_one_rank_used_a_layer,
        made_again_where_one_rank_used_a_layer,
        whole_before_head_in_turns,
        head_before_whole_in_turns,
        compressed_gradients_in_turns,
        sparse_gradients_in_turns,
        dropped_when_the_newer_of_two_optimizers_is_gone,
        first_sparse_gradients_that_all_ranks_drop,
        garbage_after_a_step_left_out,
        garbage_that_trained_what_is_not_trained_now,
    ],
    ids=lambda check: check.__name__,
)
def test_steps_left_out(run_ranks, check):
    run_ranks(2, check)
