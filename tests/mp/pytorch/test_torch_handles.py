"""Handles in real processes: kept as plain numbers, and from one job to the next."""

import array

import pytest
import torch

import horovod.torch as hvd

MANY = 1500


def kept_as_numbers():
    numbers = array.array("q")
    for index in range(MANY):
        tensor = torch.full((2,), float(index))
        numbers.append(hvd.allreduce_async(tensor, op=hvd.Sum, name=f"number {index}"))
        if index % 500 == 499:
            hvd.barrier()  # by now earlier ones are complete
    results = [hvd.synchronize(number) for number in numbers]
    assert [result[0].item() for result in results] == [index * hvd.size() for index in range(MANY)]


def over_a_shutdown():
    finished = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="finished")
    hvd.barrier()
    while not hvd.poll(finished):
        pass
    size = hvd.size()
    lost = [
        hvd.allreduce_async_(torch.ones(2), name=f"only on {hvd.rank()}"),
        hvd.grouped_allgather_async([torch.ones(2)] * 2, name=f"group only on {hvd.rank()}"),
    ]
    hvd.shutdown()
    hvd.init()
    later = [hvd.allreduce_async(torch.full((2,), float(index)), name=f"b{index}") for index in range(6)]
    for handle in lost:
        with pytest.raises(hvd.HorovodInternalError, match="shut down"):
            hvd.synchronize(handle)
    assert hvd.synchronize(finished).tolist() == [size] * 3
    assert [hvd.synchronize(handle)[0].item() for handle in later] == [0, 1, 2, 3, 4, 5]


def ranks_check():
    hvd.init()
    kept_as_numbers()
    over_a_shutdown()
    return True


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_handles(run_ranks, transport):
    assert run_ranks(2, ranks_check, env={"HOROVOD_TRANSPORT": transport}) == [True, True]
