"""DistributedOptimizer over the fake core, as one of two ranks: gradients that the program changes while they
are being reduced.
"""

import gc
from contextlib import nullcontext

import pytest
from small_models import backward, model, wrapped

import horovod.torch as hvd
from horovod.torch.operations import ops


def test_replaced_gradients_are_refused(two):
    for options in ({}, {"groups": 1}, {"compression": hvd.Compression.fp16}):
        net = model()
        optimizer = wrapped(net, **options)
        backward(net)
        for parameter in net.parameters():
            parameter.grad = parameter.grad / 2
        with pytest.raises(RuntimeError, match=r"was changed between.*synchronize_in_backward"):
            optimizer.step()


@pytest.mark.parametrize(
    ("options", "noticed"),
    [({}, True), ({"groups": 1}, True), ({"compression": hvd.Compression.fp16}, False)],
)
def test_gradients_changed_behind_torchs_back_are_refused(two, options, noticed):
    """Once they are reduced; what was compressed has not reached the gradient by then, and overwrites it."""
    net = model()
    optimizer = wrapped(net, **options)
    backward(net)
    two.progress()
    net[0].weight.grad.data.mul_(0.5)
    with pytest.raises(RuntimeError, match=r"'0.weight'.* was changed") if noticed else nullcontext():
        optimizer.step()
    optimizer.zero_grad()
    backward(net)
    two.progress()
    optimizer.step()


def test_gradients_in_flight_when_their_optimizer_is_dropped_are_not_kept(two):
    net = model()
    optimizer = wrapped(net)
    backward(net)
    assert len(ops._handle_map) == 3  # one is held until the step
    del optimizer
    gc.collect()
    two.progress()
    assert sorted(ops._dropped_now()) == sorted(ops._handle_map)
