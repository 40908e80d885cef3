"""Gradients that no rank has, over the fake core, as one of two ranks."""

import torch

from horovod.common.training.presence import Presence
from horovod.torch.operations import ops


def test_a_variable_is_present_where_any_rank_has_it(two):
    two.peers = lambda request, own: [own, [torch.tensor([0, 1, 0, 1], dtype=torch.uint8)]]
    presence = Presence(ops, "optimizer.present")
    assert presence.finish(presence.start([True, True, False, False])) == [True, True, False, True]
    assert [request.name for request in two.requests] == ["optimizer.present"]
