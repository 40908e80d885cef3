"""Process groups beside ``hvd`` in one process: with the same ranks, with a part of them, and with others."""

import contextlib
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from process_groups import SECONDS

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401  (registers the backend)
from horovod.common.exceptions import HorovodInternalError


def own_numbers() -> tuple[int, int]:
    """Rank and size, as the test has them."""
    return int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])


def forget_the_launcher() -> tuple[int, int]:
    numbers = own_numbers()
    for name in [*os.environ]:
        if name.startswith(("HOROVOD_", "MASTER_")) or name.endswith(("RANK", "WORLD_SIZE")):
            del os.environ[name]
    return numbers


def begin(store: str, rank: int, size: int, backend: str = "hvd") -> None:
    """The default group, by a file that all of its ranks share."""
    limit = timedelta(seconds=SECONDS)
    file = dist.FileStore(store, -1)
    dist.init_process_group(backend, store=file, rank=rank, world_size=size, timeout=limit)


def check_group(ranks: list[int], group: Any = None) -> None:
    """Whether the group has the ranks, in this order, of those that the launcher has started."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tensor = torch.tensor([ranks[rank] + 1.0])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == sum(ranks) + size
    parts = [torch.empty(1) for _ in ranks]
    dist.all_gather(parts, torch.tensor([float(ranks[rank])]), group=group)
    assert [int(part) for part in parts] == ranks


def check_hvd() -> None:
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def in_any_order(store: str, hvd_first: bool, hvd_ends_first: bool, launched: bool) -> None:
    rank, size = own_numbers() if launched else forget_the_launcher()
    for _ in range(3):
        if hvd_first:
            hvd.init()
        begin(store, rank, size)
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, size)
        check_group(list(range(size)))
        check_hvd()
        part = dist.new_group([0, 1])
        lone = dist.new_group([rank], use_local_synchronization=True)
        if not hvd_ends_first:
            dist.destroy_process_group()
            check_hvd()
            hvd.shutdown()
            continue
        late = dist.all_reduce(torch.ones(1), async_op=True)
        hvd.shutdown()
        with contextlib.suppress(HorovodInternalError):  # it was in flight, perhaps
            late.wait()
        check_ended(rank, part)
        check_group([rank], lone)  # which needs no job
        if launched:  # the old group does not take the next job for its own
            hvd.init()
            check_ended(rank, part)
            check_hvd()
        dist.destroy_process_group()
        if launched:
            check_hvd()
            hvd.shutdown()
    assert not hvd.is_initialized()


def check_ended(rank: int, part: Any) -> None:
    with pytest.raises(dist.DistBackendError, match=r"has ended, by hvd\.shutdown\(\)"):
        dist.all_reduce(torch.ones(1))
    if rank < 2:
        with pytest.raises(dist.DistBackendError, match="has ended"):
            dist.send(torch.ones(1), 1 - rank, group=part)
        with pytest.raises(dist.DistBackendError, match="has ended"):
            dist.new_group([0, 1], use_local_synchronization=True)


def started_again(store: str) -> None:
    """Beside ``hvd``, which goes on."""
    hvd.init()
    for _ in range(3):
        begin(store, hvd.rank(), hvd.size())
        check_group(list(range(hvd.size())))
        dist.destroy_process_group()
        check_hvd()


def parts(store: str) -> None:
    """Default groups of a part of the ranks, one after the other and side by side."""
    hvd.init()
    for turn, worlds in enumerate([[[1, 3]], [[0, 1, 2]], [[0, 2], [1, 3]], [[1, 3]]]):
        for ranks in worlds:
            if hvd.rank() in ranks:
                begin(f"{store}{ranks}", ranks.index(hvd.rank()), len(ranks))
                check_group(ranks)
                if len(ranks) > 2:
                    pair = dist.new_group([1, 2])
                    if hvd.rank() in ranks[1:]:
                        check_group(ranks[1:], pair)
                handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name=f"turn {turn}")
                if dist.get_rank() == 0:
                    dist.send(torch.ones(3), 1)
                elif dist.get_rank() == 1:
                    got = torch.empty(3)
                    assert dist.recv(got) == 0 and got.sum() == 3
                assert hvd.synchronize(handle).item() == 4
                dist.destroy_process_group()
        if not any(hvd.rank() in ranks for ranks in worlds):
            hvd.allreduce(torch.ones(1), op=hvd.Sum, name=f"turn {turn}")
        check_hvd()


def part_before_hvd(store: str) -> str:
    """The launcher has started more ranks: ``hvd.init()`` cannot join the job of the group."""
    rank, _ = own_numbers()
    told = ""
    if rank in (1, 3):
        begin(store, rank // 2, 2)
        check_group([1, 3])
        with pytest.raises(ValueError, match=r"Call hvd\.init\(\) first") as caught:
            hvd.init()
        told = str(caught.value)
        check_group([1, 3])
        dist.destroy_process_group()
    hvd.init()
    check_hvd()
    return told


def different_jobs(store: str, with_hvd: list[int]) -> str:
    """Every process is a job of its own for ``hvd``."""
    rank, size = forget_the_launcher()
    if rank in with_hvd:
        hvd.init()
    with pytest.raises(ValueError) as caught:
        begin(store, rank, size)
    assert hvd.is_initialized() == (rank in with_hvd)
    assert not dist.is_initialized()
    hvd.shutdown()
    begin(store, rank, size)
    hvd.init()
    check_group(list(range(size)))
    check_hvd()
    return str(caught.value)


def parts_beside_gloo(store: str, with_hvd: bool) -> list[str]:
    """Groups of ours where the default group is gloo's; of what is no job, each member hears the same."""
    rank, size = own_numbers()
    if with_hvd:
        hvd.init()
    else:
        forget_the_launcher()
    begin(store, rank, size, "gloo")
    told, groups = [], []
    for ranks in ([1, 3], [0, 1], [0, 1, 2, 3], [1, 3], [0, 2]):
        apart = not with_hvd and ranks != [1, 3]
        with pytest.raises(ValueError) if apart and rank in ranks else contextlib.nullcontext() as caught:
            group = dist.new_group(ranks, backend="hvd")
            if rank in ranks:
                check_group(ranks, group)
                groups.append((ranks, group))
        if caught is not None:
            told.append(str(caught.value))
        dist.barrier()
        if apart:
            break
    for members, earlier in groups:  # what is refused takes nothing from them
        check_group(members, earlier)
    dist.barrier()
    dist.destroy_process_group()
    return told


def overlapping(store: str) -> None:
    """Whom a rank knows already, from groups of which not all members have been, says nothing of these."""
    hvd.init()
    begin(store, hvd.rank(), hvd.size(), "gloo")
    for ranks in ([0, 1], [1, 2], [0, 1], [0, 2], [0, 1, 2], [1, 2]):
        group = dist.new_group(ranks, backend="hvd")
        if hvd.rank() in ranks:
            check_group(ranks, group)
    dist.destroy_process_group()


def left_apart(store: str) -> None:
    """One rank has left all of its groups, another is in one of them still."""
    hvd.init()
    begin(store, hvd.rank(), hvd.size(), "gloo")
    everybody = dist.new_group(backend="hvd")
    pair = dist.new_group([1, 2], backend="hvd")
    dist.destroy_process_group(everybody)
    group = dist.new_group([0, 1], backend="hvd")
    if hvd.rank() in (0, 1):
        check_group([0, 1], group)
    if hvd.rank() in (1, 2):
        check_group([1, 2], pair)
    dist.barrier()
    dist.destroy_process_group()


def one_after_another(store: str) -> None:
    """Groups beside gloo's default group, each of which may be the last of the job."""
    rank, size = forget_the_launcher()
    begin(store, rank, size, "gloo")
    for last in (0, 1):
        groups = [dist.new_group(backend="hvd") for _ in range(2)]
        dist.destroy_process_group(groups.pop(last))
        dist.barrier()
        check_group(list(range(size)), groups[0])
        dist.destroy_process_group(groups[0])
        assert not hvd.is_initialized()
    dist.destroy_process_group()


@pytest.mark.parametrize("hvd_ends_first", [False, True])
@pytest.mark.parametrize(("hvd_first", "launched"), [(True, True), (False, True), (False, False)])
def test_the_same_job(
    run_ranks: Callable[..., Any], tmp_path: Path, hvd_first: bool, launched: bool, hvd_ends_first: bool
) -> None:
    run_ranks(3, in_any_order, [str(tmp_path / "store"), hvd_first, hvd_ends_first, launched])


def pairs_in_turn(store: str) -> None:
    """Some ranks have begun more groups than those that they meet then."""
    hvd.init()
    for pair in ([0, 1], [0, 2], [1, 2], [0, 1, 2]):
        if hvd.rank() in pair:
            begin(store + "".join(map(str, pair)), pair.index(hvd.rank()), len(pair))
            check_group(pair)
            dist.group.WORLD.monitored_barrier(timedelta(seconds=SECONDS))
            dist.destroy_process_group()
    hvd.shutdown()


@pytest.mark.parametrize("program", [started_again, parts], ids=lambda program: program.__name__)
def test_beside_hvd_which_goes_on(
    run_ranks: Callable[..., Any], tmp_path: Path, program: Callable[[str], None]
) -> None:
    run_ranks(4, program, [str(tmp_path / "store")])


def test_a_part_of_the_ranks_before_hvd(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    told = run_ranks(4, part_before_hvd, [str(tmp_path / "store")])
    assert "rank 3 of 4, but a process group of torch.distributed has made it rank 1 of 2" in told[3]


@pytest.mark.parametrize(
    ("with_hvd", "said"), [([0, 1, 2], "different jobs: 0 is rank 0 of 1, 1 is"), ([0], "[1, 2] are not")]
)
def test_other_ranks_are_refused_alike(
    run_ranks: Callable[..., Any], tmp_path: Path, with_hvd: list[int], said: str
) -> None:
    told = run_ranks(3, different_jobs, [str(tmp_path / "store"), with_hvd])
    assert len(set(told)) == 1 and said in told[0], told


def test_the_job_lasts_as_long_as_a_group(run_ranks: Callable[..., Any], tmp_path: Path) -> None:
    run_ranks(3, one_after_another, [str(tmp_path / "store")])


@pytest.mark.parametrize(
    "program", [overlapping, left_apart, pairs_in_turn], ids=lambda program: program.__name__
)
def test_ranks_that_know_others_meet_all_the_same(
    run_ranks: Callable[..., Any], tmp_path: Path, program: Callable[[str], None]
) -> None:
    run_ranks(3, program, [str(tmp_path / "store")])


@pytest.mark.parametrize("with_hvd", [True, False])
def test_parts_beside_gloo(run_ranks: Callable[..., Any], tmp_path: Path, with_hvd: bool) -> None:
    told = run_ranks(4, parts_beside_gloo, [str(tmp_path / "store"), with_hvd])
    assert [len(texts) for texts in told] == ([0, 0, 0, 0] if with_hvd else [1, 1, 0, 0])
    assert with_hvd or (told[0] == told[1] and "[1] of the process group are in a job" in told[0][0]), told
