"""Calls that cannot be meant, and calls that the ranks do not make alike: they end with an error that says
who and what, never with a wrong result, and the next operation works.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from process_groups import in_another_order, process_group

from horovod.common.exceptions import TensorMismatchError


def check_works(size: int) -> None:
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 2


def sparse(*shape: int, deep: int | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype).to_sparse(deep or len(shape))


def sparse_tensors() -> list[str]:
    """The errors, which are the same on all ranks."""
    texts = []
    with process_group() as (rank, size):
        pairs = [
            (sparse(3, 3), sparse(4, 4)),
            (sparse(3, 3), sparse(3)),
            (sparse(3, 4), sparse(3, 4, deep=1)),
            (sparse(3), sparse(3, dtype=torch.float64)),
            (sparse(5), torch.sparse_coo_tensor([[200_000_000]], [5.0], (300_000_000,))),
        ]
        for one, other in pairs:
            with pytest.raises(TensorMismatchError) as caught:
                dist.all_reduce(other if rank == 1 else one)
            texts.append(str(caught.value))
            check_works(size)
        for shape, deep in itertools.product([(3, 4), (0, 4), (3, 0)], [1, 2]):
            tensor = sparse(*shape, deep=deep)
            dist.all_reduce(tensor)
            assert torch.equal(tensor.to_dense(), torch.full(shape, float(size)))
    return texts


def reductions() -> list[str]:
    """The errors, which are the same on all ranks."""
    texts = []
    with process_group() as (rank, size):
        odd = rank == 1
        numbers = torch.ones(6, dtype=torch.int32)
        uneven = [torch.ones(1 + place) for place in range(size)]
        add, largest = (dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM), dist.ReduceOp.MAX
        mean = dist.ReduceOp.AVG if odd else dist.ReduceOp.SUM
        bits = dist.ReduceOp.BAND if odd else dist.ReduceOp.BOR
        shape = (2, 3) if odd else (3, 2)
        calls: list[Callable[[], Any]] = [
            lambda: dist.reduce(torch.ones(2), 1 if odd else 0),
            lambda: dist.reduce(numbers, 1 if odd else 0, dist.ReduceOp.BXOR),
            lambda: dist.all_reduce(torch.ones(2), add),
            lambda: dist.all_reduce(numbers, bits),
            lambda: dist.all_reduce(numbers.view(shape), dist.ReduceOp.BAND),
            lambda: dist.all_reduce(sparse(3), mean),
            lambda: dist.reduce_scatter(torch.zeros(1 + rank), uneven, add),
        ]
        for call in calls:
            with pytest.raises(TensorMismatchError) as caught:
                call()
            texts.append(str(caught.value))
            check_works(size)
        results = torch.zeros(1 + rank)
        dist.reduce_scatter(results, uneven, largest)
        assert results.tolist() == [1.0] * (1 + rank)
        for root in range(size):
            tensor = numbers.clone()
            dist.reduce(tensor, root, dist.ReduceOp.BXOR)
            assert tensor.tolist() == [size % 2 if rank == root else 1] * 6
    return texts


def rooted(options: Any, root: int) -> Any:
    options.rootRank = root
    return options


def calls_with(other: int) -> list[Callable[[], Any]]:
    """In which a rank is this one."""
    group: Any = dist.group.WORLD
    tensor = torch.ones(2)
    return [
        lambda: group.broadcast([tensor], rooted(dist.BroadcastOptions(), other)),
        lambda: group.reduce([tensor], rooted(dist.ReduceOptions(), other)),
        lambda: group.gather([], [tensor], rooted(dist.GatherOptions(), other)),
        lambda: group.scatter([tensor], [], rooted(dist.ScatterOptions(), other)),
        lambda: group.send([tensor], other, 0),
        lambda: group.recv([tensor], other, 0),
    ]


def ranks_that_do_not_exist() -> None:
    with process_group() as (rank, size):
        for other in (-1, size, 99):
            text = rf"rank {rank} of {size} of process group .*: there is no rank {other} \(only 0 to"
            for call in calls_with(other):
                with pytest.raises(ValueError, match=text):
                    call()
            for named in (dist.broadcast, dist.send, dist.recv):
                with pytest.raises((ValueError, RuntimeError)):
                    named(torch.ones(2), other)
        check_works(size)


def zeros(*lengths: int) -> list[torch.Tensor]:
    return [torch.zeros(length) for length in lengths]


def seen_alone() -> None:
    """Nothing is sent, so no rank waits for another."""
    with process_group() as (rank, size):
        few, many, wide = [2] * (size - 1), [2] * (size + 1), torch.zeros(2, dtype=torch.float64)
        tensor, whole = torch.zeros(2), torch.zeros(size)
        mixed = [*zeros(*few), wide]
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("reduce_scatter, inputs.*give one for each", lambda: dist.reduce_scatter(tensor, zeros(*few))),
            ("reduce_scatter, inputs.*give one for each", lambda: dist.reduce_scatter(tensor, zeros(*many))),
            ("all_gather, outputs.*give one for each", lambda: dist.all_gather(zeros(*few), tensor)),
            ("all_gather, outputs.*give one for each", lambda: dist.all_gather(zeros(*many), tensor)),
            ("all_gather, outputs.*float64", lambda: dist.group.WORLD.allgather([mixed], [tensor])),
            ("for itself.*has 3 elements", lambda: dist.all_gather(zeros(*[3] * size), tensor)),
            ("for itself.*has 3 elements", lambda: dist.reduce_scatter(tensor, zeros(*[3] * size))),
            ("all_to_all, inputs.*give one", lambda: dist.all_to_all(zeros(*[2] * size), zeros(*many))),
            ("all_to_all, outputs.*give one", lambda: dist.all_to_all(zeros(*few), zeros(*[2] * size))),
            ("reshape it to", lambda: dist.all_to_all_single(torch.tensor(1.0), torch.tensor(1.0))),
            ("not equally many", lambda: dist.all_to_all_single(whole, torch.zeros(size + 1))),
            ("the splits", lambda: dist.all_to_all_single(whole, whole, [1] * size, [2] + [1] * (size - 1))),
            ("the splits", lambda: dist.all_to_all_single(whole, whole, [1] * (size + 1), [1] * size)),
            ("layout torch.sparse_coo", lambda: dist.broadcast(sparse(3), 0)),
        ]
        if rank == 0:
            calls += [
                ("gather, outputs.*give one for each", lambda: dist.gather(tensor, zeros(*many), 0)),
                ("gather, outputs.*has 1 elements", lambda: dist.gather(tensor, zeros(*[1] * size), 0)),
                ("scatter, inputs.*give one for each", lambda: dist.scatter(tensor, zeros(*few), 0)),
                ("scatter, inputs.*has 3 elements", lambda: dist.scatter(tensor, zeros(*[3] * size), 0)),
            ]
        for text, call in calls:
            with pytest.raises(ValueError, match=text) as caught:
                call()
            assert not isinstance(caught.value, TensorMismatchError)
        check_works(size)


def sizes_at_odds() -> None:
    """In lists and splits whose sums are right, on three ranks."""
    with process_group() as (rank, size):
        given = torch.full((rank + 1,), float(rank))
        lengths = [1, 3, 2] if rank == 0 else [1, 2, 3]
        expects(rank == 0, "all_gather.*rank 1 has sent 2 elements.*room for 3")(
            lambda: dist.all_gather(zeros(*lengths), given)
        )
        of_complex = [torch.zeros(length, dtype=torch.complex64) for length in lengths]
        expects(rank == 0, "all_gather.*rank 1 has sent 2 elements.*room for 3")(
            lambda: dist.group.WORLD.allgather([of_complex], [given.to(torch.complex64)]).wait()
        )
        lengths = [1, 3, 2] if rank == 2 else [2, 2, 2]
        expects(rank == 2, "all_to_all.*rank 0 has sent 2 elements.*room for 1")(
            lambda: dist.all_to_all(zeros(*lengths), zeros(2, 2, 2))
        )
        for width in (1, 4):
            output, source = torch.zeros(6, width), torch.ones(6, width)
            text = f"all_to_all_single.*rank 0 has sent {2 * width} elements.*room for {width}"
            expects(rank == 2, text)(
                lambda output=output, source=source: dist.all_to_all_single(output, source, lengths, [2] * 3)
            )
        late = dist.all_to_all_single(torch.zeros(6), torch.ones(6), lengths, [2] * 3, async_op=True)
        expects(rank == 2, "all_to_all_single.*rank 0")(late.wait)
        assert late.is_success() == (rank != 2)
        expects(rank == 0, "rank 0 has sent 1 elements.*room for 3")(
            lambda: dist.all_to_all_single(torch.zeros(9 if rank == 0 else 3), torch.zeros(3))
        )
        root = 1 if rank == 1 else 0
        outputs = zeros(2, 2, 2) if rank == root else None
        expects(rank != 2, r"gather.*rank \d has sent [01] tensors")(
            lambda: dist.gather(torch.ones(2), outputs, root)
        )
        expects(True, r"scatter.*rank \d has sent [01] tensors")(
            lambda: dist.scatter(torch.ones(2), outputs, root)
        )
        parts = zeros(*([3, 2, 1] if rank == 1 else [1, 2, 3]))
        expects(rank != 1, "reduce_scatter.*rank 1 has sent")(
            lambda: dist.reduce_scatter(torch.zeros(rank + 1), parts)
        )
        check_works(size)


def expects(fails: bool, text: str) -> Callable[[Callable[[], Any]], None]:
    """Calls, and sees to it that this fails, or not."""

    def call(function: Callable[[], Any]) -> None:
        if not fails:
            function()
            return
        with pytest.raises(TensorMismatchError, match=text):
            function()

    return call


def alike_to_the_core() -> None:
    """Types that travel as others, and lists that are even for some ranks alone. torch.distributed makes
    pairs of complex numbers itself in some functions, but the methods of the group do not.
    """
    with process_group() as (rank, size):
        group: Any = dist.group.WORLD
        numbers, pairs = torch.ones(2, dtype=torch.complex64), torch.ones(2, 2)
        foreign = torch.ones(4).to(torch.float8_e4m3fnuz)
        plain = torch.ones(4, dtype=torch.uint8)
        whole = [torch.zeros(size * 2, 2), torch.zeros(size * 2, dtype=torch.complex64)]
        for call in (
            lambda: group.allreduce([pairs if rank else numbers]).wait(),
            lambda: group.broadcast([pairs if rank else numbers]).wait(),
            lambda: dist.broadcast(foreign if rank else plain, 0),
            lambda: group.all_gather_single(*((whole[0], pairs) if rank else (whole[1], numbers))).wait(),
            lambda: dist.all_gather(zeros(*([2, 2, 2] if rank else [2, 1, 3])), torch.zeros(2)),
        ):
            with pytest.raises(TensorMismatchError):
                call()
            check_works(size)


def destroyed_groups() -> None:
    with process_group() as (_rank, size):
        group = dist.new_group()
        dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group(group)
        for call in (
            lambda: group.allreduce([torch.ones(1)]),
            lambda: group.barrier(),
            lambda: group.recv([torch.ones(1)], 0, 0),
            lambda: group.monitored_barrier(),
        ):
            with pytest.raises(ValueError, match=r"was destroyed, by dist\.destroy_process_group"):
                call()
        with pytest.raises(ValueError, match=r"^allreduce: Average is not defined for bool"):
            dist.all_reduce(torch.ones(1, dtype=torch.bool), dist.ReduceOp.AVG)
        check_works(size)


def orders_of_groups() -> None:
    """That differ on one rank."""
    with process_group() as (rank, size):
        for local in (False, True):
            order = [0, 2, 1] if rank == 1 else [2, 0, 1]
            with pytest.raises(
                RuntimeError, match=r"process set of ranks 0, 1, 2 cannot be made: rank . has its"
            ):
                dist.new_group(order, sort_ranks=False, use_local_synchronization=local)
        check_works(size)
        group = dist.new_group([2, 0, 1], sort_ranks=False)
        dist.all_reduce(torch.ones(1), group=group)


ALONE = [ranks_that_do_not_exist, seen_alone, destroyed_groups]
OF_THREE = [sizes_at_odds, alike_to_the_core, orders_of_groups, *ALONE]


@pytest.mark.parametrize("program", [*OF_THREE], ids=lambda program: program.__name__)
def test_disagreements(run_ranks: Callable[..., Any], program: Callable[[], None]) -> None:
    run_ranks(3, program)


@pytest.mark.parametrize("program", [sizes_at_odds, *ALONE], ids=lambda program: program.__name__)
def test_disagreements_in_another_order(
    run_ranks: Callable[..., Any], tmp_path: Path, program: Callable[[], None]
) -> None:
    run_ranks(3, program, env=in_another_order([2, 0, 1], tmp_path))


@pytest.mark.parametrize("permuted", [False, True])
def test_sparse_tensors(run_ranks: Callable[..., Any], tmp_path: Path, permuted: bool) -> None:
    env = in_another_order([2, 0, 1], tmp_path) if permuted else {}
    texts, *others = run_ranks(3, sparse_tensors, env=env)
    assert all(other == texts for other in others)
    for text in texts[:2]:
        assert "ranks 0, 2 SUM of [3, 3] of float32 with 2 sparse dimensions; rank 1 SUM of [" in text, text
    assert "rank 1 SUM of [3, 4] of float32 with 1 sparse dimensions" in texts[2]


@pytest.mark.parametrize("permuted", [False, True])
def test_reductions(run_ranks: Callable[..., Any], tmp_path: Path, permuted: bool) -> None:
    env = in_another_order([2, 0, 1], tmp_path) if permuted else {}
    texts, *others = run_ranks(3, reductions, env=env)
    assert all(other == texts for other in others)
    assert "root ranks" in texts[0] and "root 0; rank 1 BXOR" in texts[1]
    assert "ranks 0, 2 BOR of" in texts[3] and "rank 1 BAND" in texts[3]
    assert "[3, 2]" in texts[4] and "[2, 3]" in texts[4] and "rank 1 AVG" in texts[5]
    assert all("reduction operation" in texts[which] for which in (2, 6))
