"""A signal handler that raises at any instruction of a wait, as Ctrl-C in a notebook may: the wait can be
taken up again, and the result is not lost before it was on its way to the caller.
"""

import itertools
import sys

import pytest
import torch

import horovod.torch as hvd
from horovod import _core
from horovod.common.collective.tensor_glue import Purpose, Result
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.operations import ops

numbers = itertools.count()


def deferred():
    """An operation whose input comes later, from a device."""
    purpose = Purpose(_core.ALLREDUCE, hvd.Sum)
    placement = ops.glue.place(torch.ones(3, 2).t(), Result.IN_PLACE, purpose)
    placement.ready = lambda: None
    return ops.start(purpose, f"deferred.{next(numbers)}", [placement])


STARTS = {
    "deferred": deferred,
    "in_place": lambda: hvd.allreduce_async_(torch.ones(3, 2).t(), op=hvd.Sum),
    "gather": lambda: hvd.allgather_async(torch.ones(2, 3)),
    "group": lambda: hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], op=hvd.Sum),
    "empty_group": lambda: hvd.grouped_allreduce_async([], op=hvd.Sum),
}
WAITS = {"synchronize": ops.synchronize, "wait": lambda handle: ops.wait(handle, 5.0)}


class Alarm(BaseException):
    """What the signal handler raises."""


class AlarmAt:
    """Raises once, before the instruction of this number that the package runs within the block."""

    def __init__(self, instruction):
        self.left = instruction

    def __enter__(self):
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _enter(self, frame, event, argument):
        if "/horovod/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, argument):
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise Alarm
        return self._step


def values(result):
    return [part.tolist() for part in result] if isinstance(result, list) else result.tolist()


def every_moment(wait, start):
    """What an interrupted wait had left known, and what the next one gave, for each moment of a wait."""
    moment = 0
    while True:
        handle, moment = start(), moment + 1
        try:
            with AlarmAt(moment):
                wait(handle)
            return
        except Alarm:
            known = int(handle) in ops._handle_map
        yield known, handle


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_wait_is_taken_up_again_after_an_alarm_at_any_moment(two, start, wait):
    expected = values(ops.synchronize(start()))
    outcomes = []
    for known, handle in every_moment(wait, start):
        result = wait(handle)
        assert (values(result) == expected) if known else (result is None)
        outcomes.append(known)
    assert sum(outcomes) > 10
    assert not ops._handle_map
    assert not two.pending or start is deferred  # whose number is the core's alone


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_and_after_one_more_alarm_while_the_first_is_handled(two, wait, monkeypatch):
    poll = two.poll

    def alarm(handle):
        monkeypatch.setattr(two, "poll", poll)
        raise Alarm

    expected = values(ops.synchronize(STARTS["gather"]()))
    outcomes = []
    for moment in range(1, 200):
        handle = STARTS["gather"]()
        monkeypatch.setattr(two, "poll", alarm)
        try:
            with AlarmAt(moment):
                wait(handle)
            break
        except Alarm:
            known = int(handle) in ops._handle_map
        monkeypatch.setattr(two, "poll", poll)
        result = wait(handle)
        assert (values(result) == expected) if known else (result is None)
        outcomes.append(known)
    assert sum(outcomes) > 10
    assert not two.pending and not ops._handle_map


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_error_is_told_again_where_an_alarm_took_its_place(two, wait):
    def start():
        handle = hvd.allreduce_async_(torch.ones(2))
        two.pending[int(handle)].error = HorovodInternalError("rank 1 is gone")
        return handle

    def wait_for_error(handle):
        with pytest.raises(HorovodInternalError, match="rank 1 is gone"):
            wait(handle)

    told = 0
    for known, handle in every_moment(wait_for_error, start):
        if known:
            told += 1
            wait_for_error(handle)
    assert told > 10
