"""The backend "hvd" of torch.distributed where no second rank is needed."""

import signal
import threading
from array import array
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
import torch.distributed as dist

import horovod.torch.distributed as backend
from horovod.common.exceptions import TensorMismatchError
from horovod.torch.distributed import CollectiveTimeoutError, barriers, communicator, work, world
from horovod.torch.distributed.checks import Expected
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.errors import differ
from horovod.torch.distributed.registration import register
from horovod.torch.distributed.work import OperationWork


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("hvd", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_it_is_registered_once() -> None:
    register()
    assert dist.is_backend_available(backend.NAME)
    assert dist.Backend("HVD") == backend.NAME
    assert dist.Backend.backend_capability[backend.NAME] == ["cpu", "cuda"]


def test_later_versions_of_torch_find_it() -> None:
    found = entry_points(group="torch.distributed.backends")
    if not [point for point in found if point.name == backend.NAME]:
        pytest.skip("this installation is older than the entry point: make build")
    found[backend.NAME].load()()


def test_a_group_says_who_it_is(alone: dist.ProcessGroup) -> None:
    assert (alone.name(), alone.rank(), alone.size()) == ("hvd", 0, 1)
    assert dist.get_backend() == "hvd"
    assert alone.group_name == dist.distributed_c10d._get_process_group_name(alone)
    assert isinstance(alone.get_group_store(), dist.Store)


def test_collectives_of_one(alone: dist.ProcessGroup) -> None:
    tensor = torch.tensor([3.0, 4.0])
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0), async_op=True)
    assert work.wait() and work.is_completed() and work.is_success()
    assert work.get_future().wait() == [tensor]
    parts = [torch.empty(2)]
    dist.all_gather(parts, tensor)
    assert parts[0].tolist() == [6.0, 8.0]
    sparse = torch.eye(2).to_sparse()
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == torch.eye(2).tolist()
    dist.barrier()


def test_what_has_no_reduction_says_so(alone: dist.ProcessGroup) -> None:
    with pytest.raises(ValueError, match="bitwise"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BOR)
    with pytest.raises(ValueError, match="can be moved, but not reduced"):
        dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fnuz))
    with pytest.raises(ValueError, match="sparse_coo"):
        dist.all_reduce(torch.eye(2).to_sparse_csr())
    with pytest.raises(ValueError, match="does not go with"):
        dist.reduce_scatter_single(torch.empty(2), torch.empty(3))


def test_an_operation_that_is_not_over_keeps_its_tensors_beside_another_thread() -> None:
    group = Communicator(0, 0, [0, 1], "group", 1.0, lambda: None)

    class Over:
        """Another thread lets it go, too, when this one has seen that it is over."""

        def is_over(self) -> bool:
            if self in group.in_flight:
                group.in_flight.popleft()
            return True

    class InFlight:
        def is_over(self) -> bool:
            return False

    works: list[Any] = [Over(), in_flight := InFlight()]
    group.in_flight.extend(works)
    group._retire()
    assert list(group.in_flight) == [in_flight]


def test_an_end_that_fails_keeps_the_tensors_of_what_is_in_flight() -> None:
    def fail() -> None:
        raise RuntimeError("no end")

    class InFlight:
        def is_over(self) -> bool:
            return False

    group = Communicator(0, 0, [0, 1], "group", 1.0, fail)
    in_flight: Any = InFlight()
    group.in_flight.append(in_flight)
    with pytest.raises(RuntimeError, match="no end"):
        group.close()
    assert in_flight in communicator._left_open
    communicator._left_open.remove(in_flight)


def test_a_group_whose_job_ends_while_it_is_made_counts_for_no_later_one() -> None:
    assert world._groups == 0
    world.leave()
    assert world._groups == 0


def test_a_barrier_whose_store_is_gone_does_not_speak_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = dist.TCPStore("127.0.0.1", keeper.port)
    group = Communicator(0, 1, [0, 1], "pair", 5.0, lambda: None)
    monkeypatch.setattr(group, "check_health", lambda: None)  # there is no job
    del keeper
    with pytest.raises(dist.DistBackendError, match="the store of the group is gone") as error:
        barriers.monitored_barrier(group, store, 20.0, False)
    assert not isinstance(error.value, TimeoutError)


@pytest.mark.parametrize("inputs", [2, 6])
def test_a_lone_rank_writes_to_nothing_but_its_output(alone: dist.ProcessGroup, inputs: int) -> None:
    memory = torch.zeros(12)
    output, given = memory[:4], torch.ones(inputs)
    for call in (
        lambda: dist.all_to_all_single(output, given),
        lambda: dist.all_to_all_single(output, given, [4], [inputs]),
        lambda: dist.all_to_all([output], [given]),
        lambda: dist.all_gather([output], given),
        lambda: dist.gather(given, [output], dst=0),
    ):
        with pytest.raises(ValueError, match=r"bytes|elements"):
            call()
    assert memory.tolist() == [0.0] * 12


def work_of(monkeypatch: pytest.MonkeyPatch, finish: Any) -> OperationWork:
    """Of an operation that is complete in the core, which can be asked for it until it has to forget it."""
    known = {7}

    def wait(handle: int, seconds: float) -> list[int]:
        assert handle in known
        return [handle]

    monkeypatch.setattr(work._core, "poll", lambda handle: True)
    monkeypatch.setattr(work._core, "wait", wait)
    monkeypatch.setattr(work._core, "forget", known.discard, raising=False)
    made = OperationWork(Communicator(0, 0, [0, 1], "pair", 5.0, lambda: None), 0, 7, None, finish, [], 5.0)
    monkeypatch.setattr(made, "_known", known, raising=False)
    return made


def test_an_interrupted_delivery_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    delivered: list[Any] = []

    def finish(outputs: Any) -> None:
        delivered.append(outputs)
        if len(delivered) == 1:
            raise KeyboardInterrupt

    operation = work_of(monkeypatch, finish)
    with pytest.raises(KeyboardInterrupt):
        operation.wait()
    assert operation.wait() and operation.is_success()
    assert delivered == [[7], [7]] and not operation._known  # type: ignore[attr-defined]


def test_an_interrupt_leaves_no_wait_behind_wherever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals at random moments: neither is the lock held afterwards, nor is the outcome lost."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for attempt in range(3000):
            operation = work_of(monkeypatch, lambda outputs: None)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + attempt % 40))
                for _ in range(20):
                    operation._done = False
                    operation._known.add(7)  # type: ignore[attr-defined]
                    operation.wait()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not operation._lock.locked()
            assert operation.wait() and operation.is_success()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100


def test_a_wait_beside_another_ones_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = work_of(monkeypatch, None)
    found: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(CollectiveTimeoutError, match=r"timeout of 0\.1 s") as error:
            operation.wait(timedelta(seconds=0.1))
        found.append(error.value)

    with operation._lock:  # as long as this thread waits
        other = threading.Thread(target=wait)
        other.start()
        other.join()
    assert found and operation.wait()


def test_tensors_at_odds_are_told_by_rank_of_the_group() -> None:
    group = Communicator(0, 1, [4, 2, 3], "some", 1.0, lambda: None)
    error = differ(group, "all_reduce", ["[3]", "[4]", "[3]"])
    assert "ranks 0, 2 [3]; rank 1 [4]" in str(error)
    with pytest.raises(TensorMismatchError, match=r"rank 0 has sent 5 elements.*room for 3"):
        Expected(group, "all_to_all", [2, 4, 6], 2).check([Counts([2, 4, 10])])  # type: ignore[list-item]


class Counts:
    """What the core tells of an alltoall."""

    def __init__(self, counts: list[int]) -> None:
        self.tobytes = array("q", counts).tobytes
