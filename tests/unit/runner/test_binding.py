"""How the ranks of a host share its cores, on machines that are folders here."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.nodes import binding
from horovod.runner.nodes.binding import Share
from horovod.runner.nodes.local import LocalNode
from horovod.runner.nodes.node import Work

Machine = Callable[..., str]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    def made(nodes: list[str], siblings: list[str]) -> str:
        for number, text in enumerate(nodes):
            folder = tmp_path / "node" / f"node{number}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{text}\n")
        for text in siblings:
            for thread in text.split(","):
                folder = tmp_path / "cpu" / f"cpu{thread}" / "topology"
                folder.mkdir(parents=True)
                (folder / "thread_siblings_list").write_text(f"{text}\n")
        return str(tmp_path)

    return made


def shares(way: str, size: int, usable: set[int], system: str) -> list[tuple[list[int], int]]:
    found = [binding.share(way, rank, size, usable, system) for rank in range(size)]
    return [(sorted(each.cores), each.threads) for each in found]


def test_by_core_a_rank_has_all_threads_of_its_cores(machine: Machine) -> None:
    """Two nodes of two cores of two threads each, which Linux counts core by core, and then once more."""
    system = machine(["0-1,4-5", "2-3,6-7"], ["0,4", "1,5", "2,6", "3,7"])
    all_of_it = set(range(8))
    assert shares("core", 2, all_of_it, system) == [([0, 1, 4, 5], 4), ([2, 3, 6, 7], 4)]
    assert shares("core", 4, all_of_it, system) == [([0, 4], 2), ([1, 5], 2), ([2, 6], 2), ([3, 7], 2)]
    assert shares("core", 3, all_of_it, system) == [([0, 4], 2), ([1, 5], 2), ([2, 3, 6, 7], 4)]
    by_thread = [([thread], 1) for thread in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert shares("core", 8, all_of_it, system) == by_thread
    assert shares("core", 2, {1, 2, 6}, system) == [([1], 1), ([2, 6], 2)]


def test_by_numa_ranks_share_their_node(machine: Machine) -> None:
    system = machine(["0-3", "4-7", "", "8-9"], [])
    usable = set(range(10))
    nodes = [list(range(4)), list(range(4, 8)), [8, 9]]
    assert shares("numa", 3, usable, system) == [(node, len(node)) for node in nodes]
    assert shares("numa", 6, usable, system) == [(node, len(node) // 2) for node in nodes for _ in range(2)]
    assert shares("numa", 1, usable, system) == [(list(range(10)), 10)]
    assert shares("numa", 2, {0, 1, 4}, system) == [([0, 1], 2), ([4], 1)]


def test_without_a_description_the_cores_are_alike(tmp_path: Path) -> None:
    system = str(tmp_path / "absent")
    assert shares("core", 2, {3, 5, 6, 7}, system) == [([3, 5], 2), ([6, 7], 2)]
    assert shares("numa", 2, {3, 5, 6, 7}, system) == [([3, 5, 6, 7], 2)] * 2


def test_ranks_share_a_core_where_there_are_too_few(tmp_path: Path) -> None:
    assert shares("core", 4, {0, 1}, str(tmp_path)) == [([0], 1), ([0], 1), ([1], 1), ([1], 1)]
    assert binding.share("core", 5, 4, {0, 1}, str(tmp_path)).cores == {0}  # one too many, for a while


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 50))
def test_every_core_is_somebodys_and_no_rank_is_without(usable: set[int], size: int) -> None:
    found = shares("core", size, usable, "/absent")
    assert {core for cores, _ in found for core in cores} == usable
    assert all(cores and 1 <= threads <= len(cores) for cores, threads in found)
    assert size > len(usable) or sum(len(cores) for cores, _ in found) == len(usable)


def test_a_quota_limits_the_threads_and_not_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "share", lambda *_: Share(frozenset(range(8)), 8))
    for quota, threads in ((None, 8), (4.5, 2), (0.5, 1)):
        monkeypatch.setattr(binding.cgroups, "quota", lambda quota=quota: quota)
        assert binding.share_of_rank("numa", 0, 2) == Share(frozenset(range(8)), threads)
    assert binding.share_of_rank("none", 0, 2) is None


def test_a_worker_gets_the_part_of_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    node, parts = LocalNode.__new__(LocalNode), []
    node._work, node._ranks = Work(["true"], {}, (), 0, bind_to="core"), []

    def share_of_rank(way: str, slot: int, slots: int) -> None:
        parts.append((way, slot, slots))

    def start_one(*arguments: object, **options: object) -> None:
        node._ranks.append(SimpleNamespace(is_alive=True, slot=0))  # type: ignore[arg-type]

    monkeypatch.setattr(binding, "share_of_rank", share_of_rank)
    monkeypatch.setattr(node, "start_one", start_one)
    for worker in range(3):
        node.start_worker(worker, {}, 3)
    node._ranks[1].is_alive = False
    node.start_worker(3, {}, 3)
    assert parts == [("core", slot, 3) for slot in (0, 1, 2, 1)]


GPUS = [
    # GPUs of each, those that somebody has chosen, what two ranks see
    (0, None, [{}, {}]),
    (1, None, [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]),
    (2, "4,5,GPU-a,7", [{"CUDA_VISIBLE_DEVICES": "4,5"}, {"CUDA_VISIBLE_DEVICES": "GPU-a,7"}]),
    (2, "4,5,6", [{}, {}]),
    (1, "", [{}, {}]),
]


@pytest.mark.parametrize(("count", "chosen", "seen"), GPUS)
def test_each_rank_sees_its_gpus(count: int, chosen: str | None, seen: list[dict[str, str]]) -> None:
    environ = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert [binding.visible_gpus(count, rank, 2, environ) for rank in range(2)] == seen
    assert binding.visible_gpus(count, 3, 2, environ) == seen[1]
