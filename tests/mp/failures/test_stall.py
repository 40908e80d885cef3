"""What happens to operations that not all ranks submit."""

import threading
import time

import pytest
import torch
from load import within
from standard_error import standard_error_of

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

QUICK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "1.5"}
PATIENT = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "0.6"}


def ranks_wait_for_different_names() -> list[str]:
    hvd.init()
    errors = []

    def wait() -> None:
        try:
            hvd.allreduce(torch.ones(2), name="layer1.weight" if hvd.rank() == 0 else "layer1.weigth")
        except HorovodInternalError as error:
            errors.append(str(error))

    begin = time.monotonic()
    shown = standard_error_of(wait)
    return [*errors, shown, str(time.monotonic() - begin)]


def test_a_proved_deadlock_fails_everywhere_and_says_who_lacks_what(run_ranks) -> None:
    results = run_ranks(3, ranks_wait_for_different_names, env=QUICK)
    for error, shown, seconds in results:
        assert "deadlock" in error
        assert "allreduce 'layer1.weight'" in error and "submitted by rank 0, not by ranks 1, 2." in error
        assert "submitted 'layer1.weigth' instead, whose name is the most like it" in error
        assert "Python stacks of rank" in shown and "ranks_wait_for_different_names" in shown
        assert 1.5 < float(seconds) < within(20)
    texts = {error.split("deadlock", 1)[1] for error, _, _ in results}
    assert len(texts) == 1


def rank_skips_a_tensor() -> str:
    hvd.init()
    try:
        for name in ("w3", "w4"):
            if hvd.rank() == 1 and name == "w3":
                continue
            hvd.allreduce(torch.ones(2), name=name)
    except HorovodInternalError as error:
        return str(error)
    return ""


def test_a_skipped_tensor_is_named_with_what_the_absent_rank_waits_for(run_ranks) -> None:
    for error in run_ranks(2, rank_skips_a_tensor, env=QUICK):
        assert "'w3'" in error and "submitted by rank 0, not by rank 1." in error
        assert "rank 1 waits for allreduce 'w4'" in error or "'w4' instead" in error


def rank_computes_for_long() -> tuple[float, str]:
    hvd.init()
    results = []

    def work() -> None:
        if hvd.rank() == 1:
            time.sleep(3)
        results.append(hvd.allreduce(torch.ones(2), name="x", op=hvd.Sum)[0].item())

    shown = standard_error_of(work)
    return results[0], shown


def test_a_rank_that_computes_is_waited_for(run_ranks) -> None:
    """Five times as long as a deadlock may last."""
    results = run_ranks(3, rank_computes_for_long, env=PATIENT)
    assert [value for value, _ in results] == [3.0] * 3
    warnings = results[0][1]
    assert (
        "allreduce 'x'" in warnings
        and "not by rank 1" in warnings
        and "rank 1 waits for no operation" in warnings
    )
    assert "1 operation still waits, as reported before: allreduce 'x', " in warnings


def rank_waits_beside(work: str) -> float:
    """A thread waits in the library while another does something else, and then what is waited for."""
    hvd.init()
    received = torch.zeros(1)
    other = 1 - hvd.rank()
    begin = time.monotonic()
    if work == "a new thread computes":
        computing = threading.Thread(target=compute_and_send, args=(begin + 3, other))
        computing.start()
        hvd.recv(received, other, 7)
        computing.join()
        return float(received)
    thread = threading.Thread(target=hvd.recv, args=(received, other, 7))
    thread.start()
    while time.monotonic() < begin + 3:
        time.sleep(0.01)
    hvd.send(torch.ones(1), other, 7)
    thread.join()
    return float(received)


def compute_and_send(until: float, other: int) -> None:
    while time.monotonic() < until:
        pass
    hvd.send(torch.ones(1), other, 7)


@pytest.mark.parametrize("work", ["the main thread sleeps", "a new thread computes"])
def test_a_rank_of_which_a_thread_can_go_on_is_waited_for(run_ranks, work) -> None:
    assert run_ranks(2, rank_waits_beside, [work], env=PATIENT) == [1.0, 1.0]


def rank_waits_for_a_thread_that_waits() -> str:
    hvd.init()
    errors: list[str] = []

    def wait() -> None:
        try:
            hvd.allreduce(torch.ones(2), name=f"own.{hvd.rank()}")
        except HorovodInternalError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    return errors[0]


def test_a_deadlock_is_proved_although_the_main_thread_waits_for_another(run_ranks) -> None:
    for error in run_ranks(2, rank_waits_for_a_thread_that_waits, env=QUICK):
        assert "deadlock" in error and "'own.1'" in error


def rank_joins_while_another_deadlocks() -> str:
    hvd.init()
    try:
        if hvd.rank() == 0:
            hvd.join()
        else:
            hvd.allreduce(torch.ones(2), name=f"own.{hvd.rank()}")
    except HorovodInternalError as error:
        return str(error)
    return ""


def test_a_joined_rank_is_not_missed(run_ranks) -> None:
    for error in run_ranks(3, rank_joins_while_another_deadlocks, env=QUICK):
        assert "'own.1'" in error and "not by rank 2." in error and "rank 0," not in error


def explicit_limit() -> str:
    hvd.init()
    try:
        if hvd.rank() == 1:
            time.sleep(4)
        hvd.allreduce(torch.ones(2), name="x")
    except HorovodInternalError as error:
        return str(error)
    return ""


def test_an_explicit_limit_fails_also_while_a_rank_computes(run_ranks) -> None:
    errors = run_ranks(2, explicit_limit, env={"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"})
    assert all("'x'" in error and "not by rank 1" in error for error in errors)


def asked_for_stacks() -> str:
    hvd.init()

    def ask() -> None:
        hvd.barrier()
        if hvd.rank() == 0:
            hvd.stacks()
        time.sleep(within(2))

    shown = standard_error_of(ask)
    hvd.barrier()
    return shown


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_stacks_of_all_ranks(run_ranks, transport: str) -> None:
    for rank, shown in enumerate(run_ranks(2, asked_for_stacks, env={"HOROVOD_TRANSPORT": transport})):
        assert f"Python stacks of rank {rank}" in shown and "asked_for_stacks" in shown
