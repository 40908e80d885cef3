"""What ranks compare when they make an optimizer, a tape or a trainer; ranks are threads."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from horovod.common import basics
from horovod.common.exceptions import TensorMismatchError
from horovod.common.process_sets import global_process_set
from horovod.common.set_agreement import ranks_text
from horovod.common.training import agreement
from horovod.common.training.agreement import Agreement, own_names


def refusals(job, ranks, facts_of, subject_of=lambda rank: "DistributedOptimizer"):
    """The errors of a job whose ranks disagree: the same text for all of them."""

    def program(rank):
        agreed = Agreement(subject_of(rank))
        with pytest.raises(TensorMismatchError) as caught:
            agreed.reach(facts_of(rank))
        assert not agreed.reached
        return str(caught.value)

    texts = job(ranks).run_all(program)
    assert len(set(texts)) == 1
    return texts[0]


def test_equal_facts_take_one_small_collective(job):
    three = job(3)
    facts = {f"parameter '{index}'": "float32 [1000]" for index in range(1000)}

    def program(rank):
        agreed = Agreement("DistributedOptimizer")
        assert not agreed.reached
        agreed.reach(dict(sorted(facts.items(), reverse=rank == 1)))
        assert agreed.reached

    three.run_all(program)
    assert len(three.log) == 3
    assert all(request.tensors[0][3][0] < 200 for _, request in three.log)


def test_a_difference_is_one_error_on_all_ranks(job):
    text = refusals(job, 4, lambda rank: {"op": "Sum" if rank == 2 else "Average", "passes": "1"})
    assert "op (ranks 0, 1, 3: Average; rank 2: Sum)" in text
    assert "passes" not in text


def test_ranks_with_different_numbers_of_parameters(job):
    text = refusals(job, 2, lambda rank: {f"parameter {index}": "float32 [2]" for index in range(1 + rank)})
    assert "parameter 1 (rank 0: nothing; rank 1: float32 [2])" in text


def test_many_differences_and_many_kinds_stay_readable(job):
    text = refusals(job, 12, lambda rank: {f"parameter {index}": f"[{rank}]" for index in range(300)})
    assert "; 295 more" in text
    assert "Ranks 4-11 differ from these." in text
    assert len(text) < 1000


def test_different_objects_in_one_place(job):
    text = refusals(job, 2, lambda rank: {}, ["DistributedOptimizer", "DistributedGradientTape"].__getitem__)
    assert "rank 0: DistributedOptimizer; rank 1: DistributedGradientTape" in text


def test_numbers_are_those_of_the_rank_that_has_made_most(job, monkeypatch):
    """A rank counts for itself only until the ranks compare."""
    two = job(2)
    made = {0: 5, 1: 1}

    def program(rank):
        agreed = Agreement("DistributedOptimizer")
        agreed.number = made[rank]
        agreed.reach({})
        return agreed.numbered("name"), Agreement("DistributedOptimizer").number

    assert {name for name, _ in two.run_all(program)} == {"name#5"}
    assert Agreement("DistributedOptimizer").number >= 6
    assert Agreement("DistributedGradientTape").numbered("name") == "name"


def test_a_new_job_has_to_agree_again(job):
    def program(rank):
        agreed = Agreement("DistributedOptimizer", global_process_set)
        agreed.reach({})
        return agreed

    agreed = job(1).run_all(program)[0]
    assert agreed.reached
    basics.note_join()
    assert not agreed.reached
    assert agreed.reached_in_job
    agreement._end_job()
    assert not agreed.reached_in_job


def test_elastic_ranks_agree_later(monkeypatch):
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    assert agreement.at_construction()
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    assert not agreement.at_construction()


def test_ranks_are_listed_shortly():
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 5]) == "ranks 0, 1, 2, 5"
    assert ranks_text([0, *range(7, 300)]) == "ranks 0, 7-299"


def test_objects_made_by_several_threads_have_numbers_of_their_own(job, monkeypatch):
    """They are counted under a lock, however slow it is."""

    class Slow(dict):
        def get(self, *arguments):
            found = super().get(*arguments)
            time.sleep(0.002)
            return found

    job(1)
    slow = Slow()
    monkeypatch.setattr(agreement, "_counted", lambda _: slow)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: Agreement("DistributedOptimizer"), range(24)))
    assert sorted(one.number for one in made) == list(range(1, 25))


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["dense/kernel", "dense/bias", "dense_1/kernel"], ["kernel", "bias", "kernel"]),
        (["variable", "variable_1"], ["variable.0", "variable.1"]),
        (["variable_7", "variable_12"], ["variable.0", "variable.1"]),  # a rank that has counted further
        (["head_2", "head_1"], ["head.1", "head.0"]),  # one that has another order
        (["head2", "head1"], ["head2", "head1"]),
        (["kernel_12:0", "Variable:0", ""], ["kernel", "Variable", ""]),
    ],
)
def test_own_names_of_variables(paths, expected):
    assert own_names(SimpleNamespace(name=path) for path in paths) == expected
