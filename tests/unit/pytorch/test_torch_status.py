"""What the ranks tell each other at the end of a step, over the fake core, as one of two ranks."""

import torch

from horovod.common.set_agreement import any_of
from horovod.common.training.gradient_status import DROPPED, FAILED, Report, status_of_all

USUAL = Report("", [], [], [])


def hears(two, *theirs):
    two.peers = lambda request, own: [own, [torch.tensor(theirs, dtype=torch.uint8)]]


def test_a_flag_is_set_where_any_rank_has_set_it(two):
    hears(two, 0, 1, 0, 1)
    assert any_of([True, True, False, False], "optimizer.present") == [True, True, False, True]
    assert [request.name for request in two.requests] == ["optimizer.present"]


def test_a_step_is_unusual_where_a_rank_has_something_to_report(two):
    usual, reporting, dropped = (0, 0, 1), (1, 0, 1), (0, 1, 0)
    for mine, theirs, unusual in (
        (USUAL, usual, False),
        (USUAL, reporting, True),
        (USUAL, dropped, True),
        (USUAL._replace(given_up=DROPPED), dropped, False),
        (USUAL._replace(given_up=DROPPED), usual, True),
        (USUAL._replace(given_up=FAILED), usual, True),
        (USUAL._replace(changed=["w"]), usual, True),
        (USUAL._replace(thawed=["w"]), usual, True),
        (USUAL._replace(withheld=[0]), usual, True),
    ):
        hears(two, *theirs, 0, 1)
        assert status_of_all(mine, [False, False], "status", 0) == (unusual, [False, True])
