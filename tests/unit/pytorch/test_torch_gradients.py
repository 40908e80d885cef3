"""The gradient of each operation over a process set, on ranks that are threads, against one process."""

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import mpi_ops

RANKS = 3
MEMBERS = [0, 2]


@pytest.fixture
def members(job, monkeypatch):
    """Calls ``function(position, process set)`` on the members of a set; their results."""
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    threads = job(RANKS)

    def run(function):
        def program(rank):
            pair = hvd.add_process_set(MEMBERS)
            return function(pair.rank(), pair) if pair.included() else None

        results = threads.run_all(program)
        return [results[rank] for rank in MEMBERS]

    run.job = threads
    return run


def leaf(position, rows, columns=2):
    # A generator of its own: the ranks are threads, and torch's default one is common to them.
    generator = torch.Generator().manual_seed(10 * position + rows)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64, requires_grad=True)


def weight(position, rows, columns=2):
    """What the loss of a rank multiplies its result with: the gradient of the result."""
    return leaf(100 + position, rows, columns).detach()


def gradients(members, rows, operation, outputs):
    """``outputs(p)``: how many rows member p gets. The gradients of each member's input."""

    def program(position, process_set):
        tensor = leaf(position, rows(position))
        result = operation(tensor, position, process_set)
        (result * weight(position, outputs(position))).sum().backward()
        return tensor.grad

    return members(program)


def test_allreduce(members):
    found = gradients(
        members,
        lambda p: 3,
        lambda t, p, s: hvd.allreduce(t, name="a", op=hvd.Sum, process_set=s),
        lambda p: 3,
    )
    for gradient in found:
        torch.testing.assert_close(gradient, weight(0, 3) + weight(1, 3))


def test_grouped_allreduce(members):
    def operation(tensor, position, process_set):
        return sum(hvd.grouped_allreduce([tensor, tensor * 2], process_set=process_set))

    found = gradients(members, lambda p: 3, operation, lambda p: 3)
    for gradient in found:
        torch.testing.assert_close(gradient, 3 * (weight(0, 3) + weight(1, 3)) / 2)


@pytest.mark.parametrize("grouped", [False, True])
def test_allgather(members, grouped):
    def operation(tensor, position, process_set):
        if not grouped:
            return hvd.allgather(tensor, "g", process_set)
        first, second = hvd.grouped_allgather([tensor, tensor[:1]], "g", process_set)
        assert second.shape == (2, 2)
        return first

    found = gradients(members, lambda p: 2 + p, operation, lambda p: 5)
    mean = (weight(0, 5) + weight(1, 5)) / 2
    torch.testing.assert_close(found[0], mean[:2])
    torch.testing.assert_close(found[1], mean[2:])


def test_grouped_allgather_of_both(members):
    def program(position, process_set):
        tensors = [leaf(position, 1 + position), leaf(position, 4 - position)]
        a, b = hvd.grouped_allgather(tensors, process_set=process_set)
        ((a * weight(position, 3)).sum() + (b * weight(position, 7)).sum()).backward()
        return [tensor.grad for tensor in tensors]

    means = [(weight(0, rows) + weight(1, rows)) / 2 for rows in (3, 7)]
    for found, (a, b) in zip(
        members(program), [(slice(0, 1), slice(0, 4)), (slice(1, 3), slice(4, 7))], strict=True
    ):
        torch.testing.assert_close(found[0], means[0][a])
        torch.testing.assert_close(found[1], means[1][b])


def test_broadcast(members):
    found = gradients(members, lambda p: 2, lambda t, p, s: hvd.broadcast(t, 2, "b", s), lambda p: 2)
    assert torch.equal(found[0], torch.zeros(2, 2))
    torch.testing.assert_close(found[1], (weight(0, 2) + weight(1, 2)) / 2)


def test_alltoall(members):
    found = gradients(
        members, lambda p: 4, lambda t, p, s: hvd.alltoall(t, name="x", process_set=s), lambda p: 4
    )
    for position, gradient in enumerate(found):
        half = slice(2 * position, 2 * position + 2)
        torch.testing.assert_close(gradient, torch.cat([weight(0, 4)[half], weight(1, 4)[half]]))


def test_alltoall_with_splits(members):
    """Member 0 sends 1 row to itself and 2 to the other, member 1 sends 3 and 0; each keeps one back."""
    splits = [[1, 2], [3, 0]]

    def operation(tensor, position, process_set):
        received, sources = hvd.alltoall(tensor, splits[position], process_set=process_set)
        assert not sources.requires_grad and sources.tolist() == [splits[0][position], splits[1][position]]
        return received

    found = gradients(members, lambda p: 4, operation, lambda p: [4, 2][p])
    nothing = torch.zeros(1, 2, dtype=torch.float64)
    torch.testing.assert_close(found[0], torch.cat([weight(0, 4)[:1], weight(1, 2), nothing]))
    torch.testing.assert_close(found[1], torch.cat([weight(0, 4)[1:], nothing]))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("op", "factor"), [(hvd.Average, 1), (hvd.Sum, 2)])
def test_reducescatter(members, op, factor, grouped):
    def operation(tensor, position, process_set):
        if grouped:
            return hvd.grouped_reducescatter([tensor, tensor], "r", op=op, process_set=process_set)[1]
        return hvd.reducescatter(tensor, "r", op=op, process_set=process_set)

    found = gradients(members, lambda p: 5, operation, lambda p: [3, 2][p])
    for gradient in found:
        torch.testing.assert_close(gradient, factor * torch.cat([weight(0, 3), weight(1, 2)]))


def test_reducescatter_with_factors(members):
    def operation(tensor, position, process_set):
        return hvd.reducescatter(tensor, process_set=process_set, prescale_factor=0.5, postscale_factor=6.0)

    for gradient in gradients(members, lambda p: 2, operation, lambda p: 1):
        torch.testing.assert_close(gradient, 3 * torch.cat([weight(0, 1), weight(1, 1)]))


def test_reducescatter_of_a_shared_input_as_in_one_process(members):
    """A model in which every member holds the same x and computes its part of a loss from its own rows."""

    def program(position, process_set):
        x = leaf(7, 4)
        result = hvd.reducescatter(x, process_set=process_set)
        (result.pow(3) * weight(position, 2)).sum().backward()
        return hvd.allreduce(x.grad, process_set=process_set)

    x = leaf(7, 4)
    (x.pow(3) * torch.cat([weight(0, 2), weight(1, 2)])).sum().backward()
    for gradient in members(program):
        torch.testing.assert_close(gradient, x.grad)


def test_reducescatter_by_maximum_has_no_gradient(members):
    def program(position, process_set):
        result = hvd.reducescatter(leaf(position, 2), op=hvd.Max, process_set=process_set)
        with pytest.raises(ValueError, match="not for Max"):
            result.sum().backward()

    members(program)


def test_names_of_the_backward_operations(members):
    def program(position, process_set):
        x = leaf(position, 2)
        results = [
            hvd.alltoall(x, name="a", process_set=process_set),
            hvd.reducescatter(x, name="r", process_set=process_set),
            hvd.allgather(x, name="g", process_set=process_set),
        ]
        sum(result.sum() for result in results).backward()

    members(program)
    names = {request.name for rank, request in members.job.log if rank == 0 and request.process_set}
    assert names == {"a", "r", "g", "a.gradient", "r.gradient", "g.gradient", "g.rows"}


def test_compressed_reducescatter(members):
    def program(position, process_set):
        x = leaf(position, 2)
        hvd.reducescatter(x, compression=hvd.Compression.fp16, process_set=process_set).sum().backward()
        return x.grad

    for gradient in members(program):
        assert torch.equal(gradient, torch.ones(2, 2, dtype=torch.float64))


def test_functions_as_existing_code_applies_them(members):
    def program(position, process_set):
        x = leaf(position, 2)
        results = [
            mpi_ops.HorovodAllreduce.apply(x, None, None, hvd.Sum, 1.0, 1.0, process_set),
            *mpi_ops.HorovodGroupedAllreduce.apply(None, None, hvd.Sum, 1.0, 1.0, process_set, x, x),
            mpi_ops.HorovodAllgather.apply(x, None, process_set),
            *mpi_ops.HorovodGroupedAllgather.apply(None, process_set, x, x),
            mpi_ops.HorovodBroadcast.apply(x, 0, None, process_set),
            mpi_ops.HorovodAlltoall.apply(x, None, None, process_set),
            mpi_ops.HorovodAlltoall.apply(x, torch.tensor([1, 1]), None, process_set)[0],
            mpi_ops.HorovodReducescatter.apply(x, None, hvd.Sum, process_set, 1.0, 1.0),
            *mpi_ops.HorovodGroupedReducescatter.apply(None, hvd.Sum, process_set, 1.0, 1.0, x, x),
        ]
        sum(result.sum() for result in results).backward()
        return x.grad[0, 0].item()

    # 3 allreduces: 2 each; 3 allgathers: 1; broadcast: 1 on the root; 2 alltoalls: 1; 3 reducescatters: 2
    assert members(program) == [18.0, 17.0]


@pytest.mark.parametrize(
    ("op", "theirs", "expected"),
    [
        (hvd.Max, [1.0, 5.0, 3.0], [2.0, 0.0, 3.0]),  # of the third, which both have, a half
        (hvd.Min, [1.0, 5.0, 3.0], [0.0, 4.0, 3.0]),
        (hvd.Product, [4.0, 0.0, 3.0], [8.0, 0.0, 18.0]),
    ],
)
def test_gradients_of_ties_and_zeros(two, op, theirs, expected):
    def peers(request, own):
        """Of rank 1: the same gradient, and what belongs to its tensor."""
        if request.op == hvd.Sum:
            marks = torch.tensor(theirs) == (0.0 if op == hvd.Product else extreme)
            return [own, [own[0], marks.float()]]
        other = torch.tensor(theirs)
        return [own, [other + (other == 0) if "product" in str(request.name) else other]]

    mine = torch.tensor([2.0, 0.0 if op == hvd.Product else 4.0, 3.0], requires_grad=True)
    extreme = getattr(torch, {hvd.Max: "maximum", hvd.Min: "minimum"}.get(op, "mul"))(
        mine, torch.tensor(theirs)
    )
    two.peers = peers
    result = hvd.allreduce(mine, op=op, name="a")
    assert torch.equal(result, extreme)
    result.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert mine.grad.tolist() == expected


OVERWRITING = {
    "allreduce_": hvd.allreduce_,
    "allreduce_async_": lambda t: hvd.synchronize(hvd.allreduce_async_(t)),
    "grouped_allreduce_": lambda t: hvd.grouped_allreduce_([t]),
    "grouped_allreduce_async_": lambda t: hvd.synchronize(hvd.grouped_allreduce_async_([t])),
    "broadcast_": lambda t: hvd.broadcast_(t, 0),
    "broadcast_async_": lambda t: hvd.synchronize(hvd.broadcast_async_(t, 0)),
    "broadcast_parameters": lambda t: hvd.broadcast_parameters([t], 0),
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_what_a_backward_pass_needs_may_not_be_overwritten(two, name):
    tensor = torch.ones(3, requires_grad=True)
    saved = tensor.exp()
    OVERWRITING[name](saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize("name", OVERWRITING)
def test_tensors_of_inference_mode_are_overwritten(two, name):
    with torch.inference_mode():
        tensor = torch.ones(3)
    OVERWRITING[name](tensor)
