"""Process sets on ranks that are threads: registration, agreement, and every operation over them."""

import copy
import pickle

import pytest
import torch
from fake_job import PerThread

import horovod.torch as hvd
from horovod.common import basics, process_sets
from horovod.torch import mpi_ops

DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


@pytest.fixture(autouse=True)
def dynamic(monkeypatch):
    monkeypatch.setenv(DYNAMIC, "1")


def errors_of(job, function):
    """The text of the ValueError that each rank gets."""

    def call(rank):
        with pytest.raises(ValueError) as caught:
            function(rank)
        assert type(caught.value) is ValueError
        return str(caught.value)

    return job.run_all(call)


def test_life_of_a_set(job):
    four = job(4)

    def program(rank):
        odd = hvd.ProcessSet([3, 1])
        assert (odd.ranks, odd.process_set_id, odd.included()) == ([1, 3], None, None)
        assert hvd.add_process_set(odd) is odd
        first = hvd.add_process_set([0, 1])
        told = (odd.process_set_id, odd.size(), odd.rank(), odd.included(), first.process_set_id)
        assert hvd.remove_process_set(odd) is True
        assert (odd.process_set_id, odd.size(), odd.rank(), odd.included()) == (None,) * 4
        assert hvd.remove_process_set(odd) is False
        assert hvd.remove_process_set(hvd.global_process_set) is False
        again = hvd.add_process_set([1, 3]).process_set_id
        return told, again

    results = four.run_all(program)
    assert [told for told, _ in results] == [
        (1, 2, None, False, 2),
        (1, 2, 0, True, 2),
        (1, 2, None, False, 2),
        (1, 2, 1, True, 2),
    ]
    assert len({again for _, again in results}) == 1


def test_all_ranks_is_the_global_set(job):
    three = job(3)
    assert three.run_all(lambda rank: (hvd.global_process_set.rank(), hvd.global_process_set.size())) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    texts = errors_of(three, lambda rank: hvd.add_process_set([0, 1, 2]))
    words = "the ranks [0, 1, 2] are those of the global process set already"
    assert texts == [f"hvd.add_process_set: ranks 0, 1, 2: {words}"] * 3


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "at least one rank"),
        ([0, 2], "do not all exist: the job has the ranks 0 to 1"),
        ([-1, 0], "do not all exist"),
        ([1, 1], "twice"),
        ([0.5], "made of ranks"),
        (["a"], "made of ranks"),
        (object(), "is for hvd.init(process_sets=[...])"),
    ],
)
def test_impossible_sets(job, ranks, words):
    texts = errors_of(job(2), lambda rank: hvd.add_process_set(ranks))
    assert words in texts[0]
    assert texts[0] == texts[1]


def test_duplicate(job):
    def program(rank):
        known = hvd.add_process_set([0])
        with pytest.raises(ValueError, match="those of process set 1 already"):
            hvd.add_process_set([0])
        with pytest.raises(ValueError, match="registered already, as number 1"):
            hvd.add_process_set(known)

    job(2).run_all(program)


def test_different_wishes_are_one_text_everywhere(job):
    three = job(3)
    texts = errors_of(three, lambda rank: hvd.add_process_set([0, 1] if rank else [0]))
    assert set(texts) == {
        "hvd.add_process_set: the ranks ask for different process sets: rank 0: [[0]]; ranks 1, 2: [[0, 1]]"
    }

    def add_or_remove(rank):
        known = hvd.add_process_set([0, 1])
        hvd.add_process_set([2]) if rank else hvd.remove_process_set(known)

    texts = errors_of(three, add_or_remove)
    assert set(texts) == {
        "The ranks ask for different changes of process sets: rank 0: hvd.remove_process_set; "
        "ranks 1, 2: hvd.add_process_set"
    }


def test_a_problem_of_one_rank_is_told_by_all(job):
    texts = errors_of(job(3), lambda rank: hvd.add_process_set([0, 1] if rank != 1 else []))
    assert set(texts) == {"hvd.add_process_set: rank 1: a process set has at least one rank"}


def test_needs_the_setting(job, monkeypatch):
    monkeypatch.setenv(DYNAMIC, "0")
    for text in errors_of(job(2), lambda rank: hvd.add_process_set([0])):
        assert DYNAMIC in text and "dynamic" in text


def test_removal_names_rank_and_tensor_in_flight(job):
    three = job(3)

    def program(rank):
        pair = hvd.add_process_set([0, 2])
        if rank == 2:
            handle = hvd.allreduce_async_(torch.ones(1), name="late", process_set=pair)
        with pytest.raises(ValueError) as caught:
            hvd.remove_process_set(pair)
        if rank == 0:
            hvd.allreduce_(torch.ones(1), name="late", process_set=pair)
        if rank == 2:
            hvd.synchronize(handle)
        return str(caught.value), hvd.remove_process_set(pair)

    results = three.run_all(program)
    assert len({text for text, _ in results}) == 1
    assert "rank 2: operations are in flight on process set 1: 'late'" in results[0][0]
    assert [removed for _, removed in results] == [True] * 3


def test_a_joined_rank_cannot_take_part(job):
    two = job(2)

    def program(rank):
        if rank == 1:
            return hvd.join()
        while 1 not in two.joined.get(0, {}):
            pass
        with pytest.raises(ValueError, match=r"rank 1 cannot take part after hvd\.join"):
            hvd.add_process_set([0])
        return hvd.join()

    assert two.run_all(program) == [0, 0]


@pytest.fixture
def start(job, monkeypatch):
    """``init`` of a job of ranks that are threads, whose engine starts with ``init``."""
    from horovod.bootstrap import start as bootstrap

    def make(size):
        threads = job(size)
        up = PerThread(dict)
        threads.is_initialized = lambda: bool(dict(up.items()))
        monkeypatch.setattr(bootstrap, "start", lambda comm: up.__setitem__("up", 1))
        monkeypatch.setattr(bootstrap, "stop", lambda: up.clear())
        monkeypatch.setattr(basics, "_lock", PerThread(lambda: basics.threading.RLock()))
        monkeypatch.setattr(basics, "_shutdown_callbacks", [])
        monkeypatch.setattr(basics.atexit, "register", lambda function: None)
        monkeypatch.setattr(basics, "_owner_pid", None)
        for name in ("watch", "rest"):
            monkeypatch.setattr(basics.stacks, name, lambda: None)
        return threads

    return make


def test_static_sets(start, monkeypatch):
    monkeypatch.delenv(DYNAMIC)
    two = start(2)

    def program(rank):
        mine = [hvd.ProcessSet([0]), hvd.ProcessSet([1])]
        hvd.init(process_sets=mine)
        ids = [known.process_set_id for known in mine]
        hvd.init(process_sets=mine)  # does nothing
        total = hvd.allreduce(torch.tensor([rank + 1.0]), op=hvd.Sum, process_set=mine[rank])
        return ids, total.item(), mine

    results = two.run_all(program)
    assert [result[:2] for result in results] == [([1, 2], 1.0), ([1, 2], 2.0)]


def test_sets_are_forgotten_at_shutdown(start):
    one = start(1)

    def program(rank):
        known = hvd.ProcessSet([0])
        with pytest.raises(ValueError, match="global process set"):
            hvd.init(process_sets=[known])
        assert not hvd.is_initialized()
        hvd.init(process_sets="dynamic")
        process_sets._registered[5] = known
        known.process_set_id, known._position = 5, 0
        hvd.shutdown()
        assert (known.process_set_id, known._position, list(process_sets._registered)) == (None, None, [])

    one.run_all(program)


def test_dynamic_by_init(start, monkeypatch):
    monkeypatch.delenv(DYNAMIC)
    start(1).run_all(lambda rank: hvd.init(process_sets="dynamic"))
    import os

    assert os.environ[DYNAMIC] == "1"


def test_operations_over_a_set(job):
    four = job(4)

    def program(rank):
        pair = hvd.add_process_set([1, 3])
        if rank not in (1, 3):
            return outsider(rank, pair)
        x = torch.tensor([float(rank)])
        assert hvd.allreduce(x, op=hvd.Sum, process_set=pair).item() == 4
        assert hvd.allreduce(x, process_set=pair).item() == 2
        assert hvd.allreduce_(x.clone(), op=hvd.Max, name="n", process_set=pair).item() == 3
        results = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum, process_set=pair)
        assert [result.item() for result in results] == [4, 8]
        handle = hvd.grouped_allreduce_async_([x.clone(), x.int()], op=hvd.Sum, process_set=pair)
        assert [result.item() for result in hvd.synchronize(handle)] == [4, 4]
        assert hvd.allgather(x, process_set=pair).tolist() == [1, 3]
        assert [r.tolist() for r in hvd.grouped_allgather([x, -x], process_set=pair)] == [[1, 3], [-1, -3]]
        assert hvd.broadcast(x, 3, process_set=pair).item() == 3
        assert hvd.broadcast_(x.clone(), 1, process_set=pair).item() == 1
        rows = torch.tensor([rank, 10.0 * rank])
        assert hvd.alltoall(rows, process_set=pair).tolist() == ([1, 3] if rank == 1 else [10, 30])
        assert hvd.reducescatter(rows, op=hvd.Sum, process_set=pair).item() == (4 if rank == 1 else 40)
        hvd.barrier(process_set=pair)
        assert hvd.broadcast_object({"from": rank}, 3, process_set=pair) == {"from": 3}
        assert hvd.allgather_object(rank * "x", process_set=pair) == ["x", "xxx"]
        assert hvd.metric.get_global_mean(rank, process_set=pair) == 2.0
        parameter = torch.full((2,), float(rank))
        hvd.broadcast_parameters({"p": parameter}, 3, process_set=pair)
        assert parameter.tolist() == [3, 3]
        for wrong in (0, 2):
            with pytest.raises(ValueError, match=rf"root_rank is {wrong}, .*members are the ranks \[1, 3\]"):
                hvd.broadcast(x, wrong, process_set=pair)
            with pytest.raises(ValueError, match="root_rank"):
                hvd.broadcast_object(1, wrong, process_set=pair)
        return True

    def outsider(rank, pair):
        x = torch.ones(2)
        calls = [
            lambda: hvd.allreduce(x, process_set=pair),
            lambda: hvd.allreduce_(x, process_set=pair),
            lambda: hvd.allreduce_async_(x, process_set=pair),
            lambda: hvd.grouped_allreduce([x], process_set=pair),
            lambda: hvd.grouped_allreduce_async_([x], process_set=pair),
            lambda: hvd.allgather(x, process_set=pair),
            lambda: hvd.grouped_allgather([x], process_set=pair),
            lambda: hvd.broadcast(x, 1, process_set=pair),
            lambda: hvd.alltoall(x, process_set=pair),
            lambda: hvd.reducescatter(x, process_set=pair),
            lambda: hvd.grouped_reducescatter([x], process_set=pair),
            lambda: hvd.sparse_allreduce_async(x.to_sparse(), "s", hvd.Sum, process_set=pair),
            lambda: hvd.barrier(process_set=pair),
            lambda: hvd.broadcast_object(1, 1, process_set=pair),
            lambda: hvd.allgather_object(1, process_set=pair),
            lambda: hvd.broadcast_parameters({"p": x}, 1, process_set=pair),
            lambda: hvd.metric.get_global_mean(1, process_set=pair),
            lambda: hvd.allreduce(x.requires_grad_(), process_set=pair),
        ]
        words = rf"Rank {rank} is not part of process set 1, whose members are the ranks \[1, 3\]"
        for call in calls:
            with pytest.raises(ValueError, match=words):
                call()
        return True

    assert four.run_all(program) == [True] * 4
    assert {request.process_set for rank, request in four.log if rank in (0, 2)} == {0}


def test_optimizer_state_over_a_set(job):
    def optimizer(rank, extra):
        parameter = torch.nn.Parameter(torch.ones(2))
        made = torch.optim.Adam([parameter, *extra], lr=float(rank))
        parameter.grad = torch.full((2,), float(rank))
        made.step()
        return made, made.state[parameter]["exp_avg"]

    def program(rank):
        pair = hvd.add_process_set([1, 2])
        if not pair.included():
            return None
        made, average = optimizer(rank, [])
        hvd.broadcast_optimizer_state(made, 2, process_set=pair)
        other, _ = optimizer(rank, [torch.nn.Parameter(torch.ones(1))] if rank == 1 else [])
        with pytest.raises(ValueError, match=r"differs from that of rank 2: rank 1: it has groups of \[2\]"):
            hvd.broadcast_optimizer_state(other, 2, process_set=pair)
        return made.param_groups[0]["lr"], average.tolist()

    results = job(3).run_all(program)
    assert results[1] == results[2]
    assert results[1][0] == 2.0


def test_join_in_all_sets(job):
    three = job(3)

    def program(rank):
        pair = hvd.add_process_set([0, 2])
        if rank == 2:
            while {0, 1} - three.joined.get(0, {}).keys():
                pass
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 1
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=pair).item() == 1
            assert hvd.allgather(torch.ones(1)).tolist() == [1]
        last = hvd.join()
        return last, hvd.allreduce(torch.ones(1), op=hvd.Sum).item()

    assert three.run_all(program) == [(2, 3)] * 3


def test_copies_and_pickles(job):
    assert copy.deepcopy(hvd.global_process_set) is hvd.global_process_set
    assert pickle.loads(pickle.dumps(hvd.global_process_set)) is hvd.global_process_set
    two = job(2)

    def program(rank):
        known = hvd.add_process_set([1])
        assert copy.deepcopy({"set": known})["set"] is known
        assert copy.copy(known) is known
        assert pickle.loads(pickle.dumps(known)) is known
        text = pickle.dumps(hvd.ProcessSet([0]))
        assert (pickle.loads(text).ranks, pickle.loads(text).process_set_id) == ([0], None)

    two.run_all(program)
    assert mpi_ops.add_process_set is hvd.add_process_set
