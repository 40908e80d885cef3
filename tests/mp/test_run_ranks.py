"""What the other tests stand on: run_ranks."""

import os
import subprocess
import time

import pytest
import torch

import horovod.torch as hvd


def ranks_report(word):
    hvd.init()
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1]), op=hvd.Sum).item()
    return [hvd.rank(), total, os.environ["OWN"], word, torch.get_num_threads()]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_results_come_in_rank_order(run_ranks, ranks):
    results = run_ranks(ranks, ranks_report, ["词"], env=lambda rank: {"OWN": f"for {rank}"})
    assert results == [[rank, ranks * (ranks + 1) // 2, f"for {rank}", "词", 1] for rank in range(ranks)]


def ranks_raise():
    if os.environ["HOROVOD_RANK"] == "1":
        raise KeyError("the reason")


def test_an_exception_fails_the_test_and_is_shown(run_ranks):
    with pytest.raises(pytest.fail.Exception, match=r"(?s)\[0, 1, 0\].*rank 1 ---.*KeyError: 'the reason'"):
        run_ranks(3, ranks_raise)


def ranks_abort():
    os.abort()


def test_a_crash_fails_the_test_and_shows_where(run_ranks):
    with pytest.raises(pytest.fail.Exception, match=r"(?s)\[-6\].*in ranks_abort"):
        run_ranks(1, ranks_abort)


def sleep_for_ever():
    time.sleep(1000)


def ranks_hang():
    hvd.init()
    if hvd.rank() == 1:
        sleep_for_ever()
    hvd.barrier()


def test_a_hang_fails_the_test_with_every_stack(run_ranks):
    wanted = r"(?s)\[0, 1\] did not end.*rank 0 ---.*in barrier.*rank 1 ---.*in sleep_for_ever"
    with pytest.raises(pytest.fail.Exception, match=wanted):
        run_ranks(2, ranks_hang, timeout=1.5)


def ranks_leave_a_process():
    return subprocess.Popen(["sleep", "1000"]).pid


def test_what_is_left_behind_is_ended_and_fails_the_test(run_ranks):
    with pytest.raises(pytest.fail.Exception, match=r"left behind.*sleep 1000"):
        run_ranks(1, ranks_leave_a_process)
