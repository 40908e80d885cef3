"""What every framework is tested for beside the table of operations: gradients, errors, joins, objects.

A framework's folder imports these tests by name; its fixture ``run_ranks`` sets HVD_TEST_GLUE to the file
whose ``framework`` says what is its own.
"""

import importlib
import os
import sys
import time
from pathlib import Path

import differentiation
import disagreements
import join_programs
import pytest
from framework import Framework
from load import within
from matrix import TRANSPORTS

__all__ = [
    "test_a_callers_own_mistake_concerns_nobody_else",
    "test_a_disagreement_is_the_same_error_on_every_rank",
    "test_a_joined_root_is_named",
    "test_a_killed_rank_is_named",
    "test_gradients",
    "test_gradients_of_a_process_set",
    "test_gradients_while_a_rank_has_joined",
    "test_objects",
    "test_random_programs_that_join",
    "test_ranks_may_end_after_join",
]

PROGRAMS = 500 if os.environ.get("HVD_TEST_FULL") else 50
SECONDS_UNTIL_NAMED = 2.0


def own() -> Framework:
    """The framework of this rank."""
    glue = Path(os.environ["HVD_TEST_GLUE"])
    sys.path.insert(0, str(glue.parent))
    return importlib.import_module(glue.stem).framework


def ranks_differentiate() -> None:
    framework = own()
    framework.hvd.init()
    differentiation.check_gradients(framework)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.full), 3])
def test_gradients(run_ranks, ranks: int) -> None:
    run_ranks(ranks, ranks_differentiate)


def ranks_differentiate_a_set() -> None:
    differentiation.check_gradients_of_a_set(own())


def test_gradients_of_a_process_set(run_ranks) -> None:
    run_ranks(3, ranks_differentiate_a_set)


def ranks_differentiate_without_one() -> None:
    differentiation.check_gradients_while_rank_one_has_joined(own())


def test_gradients_while_a_rank_has_joined(run_ranks) -> None:
    run_ranks(3, ranks_differentiate_without_one)


def ranks_disagree() -> list[str]:
    return disagreements.ranks_disagree(own())


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.full), 3])
def test_a_disagreement_is_the_same_error_on_every_rank(run_ranks, ranks: int, transport: str) -> None:
    disagreements.check_texts(run_ranks(ranks, ranks_disagree, env={"HOROVOD_TRANSPORT": transport}))


def ranks_make_mistakes() -> None:
    disagreements.check_own_mistakes(own())


def test_a_callers_own_mistake_concerns_nobody_else(run_ranks) -> None:
    run_ranks(2, ranks_make_mistakes)


def ranks_exchange_objects() -> None:
    disagreements.check_objects(own())


def test_objects(run_ranks) -> None:
    run_ranks(3, ranks_exchange_objects)


def rank_dies(folder: str) -> list[object]:
    return disagreements.rank_dies_in_a_loop(own(), folder)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_rank_is_named(run_ranks, tmp_path: Path, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    results = run_ranks(3, rank_dies, [str(tmp_path)], env=env, dies=[1], finalize=True)
    killed = float((tmp_path / "killed").read_text())
    for seen, text in [results[0], results[2]]:
        assert "rank 1" in text and "died" in text, text
        assert seen - killed < within(SECONDS_UNTIL_NAMED), text


def ranks_join(programs: int, hops: int) -> list[int]:
    return join_programs.run_programs(own(), programs, hops)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.full)])
def test_random_programs_that_join(run_ranks, ranks: int, transport: str) -> None:
    arguments = [PROGRAMS, 0 if transport == "shm" else ranks]
    env = {"HOROVOD_TRANSPORT": transport}
    results = run_ranks(ranks, ranks_join, arguments, env=env, timeout=60 + PROGRAMS // 5)
    assert all(last == results[0] for last in results)  # all are told the same
    assert len(set(results[0])) == ranks


def ranks_meet_a_joined_root() -> str:
    return join_programs.meet_a_joined_root(own())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_joined_root_is_named(run_ranks, transport: str) -> None:
    texts = run_ranks(3, ranks_meet_a_joined_root, env={"HOROVOD_TRANSPORT": transport})
    assert "from rank 0" in texts[1] and "joined" in texts[1]
    assert texts[1].count("from rank 0") == texts[2].count("from rank 0")


def ranks_leave_after_join() -> int:
    """The first ranks have long ended when the last one does."""
    framework = own()
    framework.hvd.init()
    framework.array(framework.hvd.allreduce(framework.ones(3)))
    last = int(framework.hvd.join())
    time.sleep(0.3 * framework.hvd.rank())
    return last


def test_ranks_may_end_after_join(run_ranks) -> None:
    assert len(set(run_ranks(3, ranks_leave_after_join, finalize=True))) == 1
