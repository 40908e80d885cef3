"""Process sets that come and go while MXNet's engine runs."""

import pytest
from check_mxnet import mx

import horovod.mxnet as hvd
from horovod.mxnet.engine import called_on


def ranks_change_sets() -> list[int]:
    """Operations without names are counted per set. Returns the numbers of the sets."""
    hvd.init(process_sets="dynamic")
    rank, size = hvd.rank(), hvd.size()
    numbers = []
    for turn in range(3):
        members = hvd.add_process_set([turn % size, (turn + 1) % size])
        numbers.append(members.process_set_id)
        everywhere = [hvd.allreduce(mx.nd.ones(2) * rank, op=hvd.Sum)]
        if members.included():  # counted apart, or the ranks would count differently
            within = [hvd.allreduce(mx.nd.ones(2), op=hvd.Sum, process_set=members) for _ in range(5)]
            assert [one.asnumpy().tolist() for one in within] == [[2.0] * 2] * 5
        everywhere.append(hvd.allreduce(mx.nd.ones(2) * rank, op=hvd.Max))
        assert everywhere[0].asnumpy().tolist() == [sum(range(size))] * 2
        assert everywhere[1].asnumpy().tolist() == [size - 1] * 2
        assert hvd.remove_process_set(members)
        with pytest.raises(ValueError, match="not registered"):
            hvd.allreduce(mx.nd.ones(2), process_set=members)
    return numbers


def test_sets_come_and_go(run_ranks) -> None:
    numbers = run_ranks(3, ranks_change_sets)
    assert len(set(numbers[0])) == 3
    assert numbers == [numbers[0]] * 3


def ranks_remove_a_set_in_flight() -> list[float]:
    """MXNet's engine is still busy with what they have called on it, and on another set."""
    hvd.init(process_sets="dynamic")
    members = hvd.add_process_set([0, 1])
    results = []
    if members.included():
        large = mx.nd.ones((1024, 1024)) * (hvd.rank() + 1)
        for _ in range(20):
            large = hvd.allreduce(large, op=hvd.Average, process_set=members)
        results.append(large)
    others = None if hvd.rank() == 1 else hvd.allreduce(mx.nd.ones(2), name="later", op=hvd.Sum)
    assert hvd.remove_process_set(members)
    others = hvd.allreduce(mx.nd.ones(2), name="later", op=hvd.Sum) if others is None else others
    assert others.asnumpy().tolist() == [hvd.size()] * 2
    return [float(result[0, 0].asscalar()) for result in results]


def test_a_set_goes_when_its_operations_have_ended(run_ranks) -> None:
    assert run_ranks(3, ranks_remove_a_set_in_flight) == [[1.5], [1.5], []]


def ranks_count_on_a_set() -> list[int]:
    """Rank 1 has called an operation more before all join, and before the next job. Returns the counts, which
    say whether the removal of the set can wait for the operations on it.
    """
    counts = []
    for _ in range(2):
        hvd.init(process_sets="dynamic")
        members = hvd.add_process_set([0, 1])
        if hvd.rank() == 1:
            hvd.allreduce(mx.nd.ones(2), process_set=members).wait_to_read()
        hvd.join()
        if members.included():
            hvd.allreduce(mx.nd.ones(2), process_set=members)
            counts.append(called_on(members.process_set_id))
        assert hvd.remove_process_set(members)
        hvd.shutdown()
    return counts


def test_a_join_and_a_new_job_count_from_the_start(run_ranks) -> None:
    assert run_ranks(3, ranks_count_on_a_set) == [[1, 1], [1, 1], []]


def ranks_remove_a_busy_set() -> str:
    """Rank 0 has called an operation on it that rank 1 has not. Returns the error."""
    hvd.init(process_sets="dynamic")
    members = hvd.add_process_set([0, 1])
    mine = mx.nd.ones(2) * hvd.rank()
    result = hvd.allreduce(mine, name="busy", op=hvd.Sum, process_set=members) if hvd.rank() == 0 else None
    with pytest.raises(ValueError) as caught:
        hvd.remove_process_set(members)
    if hvd.rank() == 1:
        result = hvd.allreduce(mine, name="busy", op=hvd.Sum, process_set=members)
    if result is not None:
        assert result.asnumpy().tolist() == [1.0] * 2
    hvd.barrier()
    assert hvd.remove_process_set(members)
    return str(caught.value)


def test_a_busy_set_stays(run_ranks) -> None:
    texts = run_ranks(3, ranks_remove_a_busy_set)
    assert texts == [texts[0]] * 3
    assert "'busy'" in texts[0] and "rank 0" in texts[0]
