"""What is torch's own beside the table and the shared tests: layouts, forms of operations, compression."""

import mmap
import tempfile
import warnings

import numpy as np
import pytest
import reference
import torch
from torch_glue import array, tensor

import horovod.torch as hvd


def everybodys(dtype, size):
    return [reference.numbers(rank, dtype, size) for rank in range(hvd.size())]


def factors():
    arrays = everybodys("float64", 11)
    mine = tensor(arrays[hvd.rank()], "float64")
    result = hvd.allreduce(mine, prescale_factor=0.5, postscale_factor=3.0)
    expected = reference.allreduce(arrays, "float64", reference.AVERAGE, 0.5, 3.0)
    assert not reference.differs(array(result), expected, "float64", hops=hvd.size())
    whole = hvd.allreduce(torch.tensor([7, -7]), op=hvd.Average)
    assert whole.tolist() == [7, -7]
    odd = hvd.allreduce(torch.tensor([-hvd.size() - 1 if hvd.rank() == 0 else 0]), op=hvd.Average)
    assert odd.tolist() == [-1]  # truncated toward zero
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        result = hvd.allreduce(mine, compression=compression)
        expected = reference.allreduce(arrays, "float64", reference.AVERAGE)
        assert result.dtype == torch.float64
        assert np.allclose(result.numpy(), expected, rtol=tolerance, atol=tolerance)


def read_only(array):
    """A tensor over memory that ends the process when it is written to."""
    with tempfile.TemporaryFile() as file:
        file.write(array.tobytes())
        file.flush()
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it cannot protect the memory
        return torch.frombuffer(memory, dtype=torch.float32)


def layouts():
    scale = sum(range(1, hvd.size() + 1))
    plain = torch.arange(24.0).reshape(4, 6)
    for view in (plain.t(), plain[::2, 1::2], plain[:, 3], plain[1, 1], plain[:0]):
        mine = view * (hvd.rank() + 1)
        laid_out = torch.empty_strided(view.shape, view.stride(), dtype=view.dtype).copy_(mine)
        assert torch.equal(hvd.allreduce(laid_out, op=hvd.Sum), view * scale)
        assert hvd.allreduce_(laid_out, op=hvd.Sum) is laid_out
        assert torch.equal(laid_out, view * scale)
    assert torch.equal(hvd.allreduce(read_only(np.arange(4.0, dtype=np.float32))), torch.arange(4.0))


def complex_numbers():
    """In every operation, of every layout, against all ranks' numbers."""
    me, size = hvd.rank(), hvd.size()
    for dtype in (torch.complex64, torch.complex128):
        everybody = [torch.randn(2 * size, 3, dtype=dtype, generator=_seeded(rank)) for rank in range(size)]
        mine, total = everybody[me], sum(everybody)
        for change in (torch.clone, torch.conj, torch.t, lambda each: each[::2, 1], lambda each: each[0, 0]):
            expected = change(total)
            assert torch.allclose(hvd.allreduce(change(mine), op=hvd.Sum), expected)
            assert torch.allclose(hvd.allreduce(change(mine)), expected / size)
            own = change(mine.clone())
            assert hvd.allreduce_(own, op=hvd.Sum) is own and torch.allclose(own, expected)
            own = change(mine.clone())
            assert hvd.broadcast_(own, size - 1) is own and torch.equal(own, change(everybody[-1]))
        assert torch.equal(hvd.allgather(mine), torch.cat(everybody))
        rows = [each[2 * me : 2 * me + 2] for each in everybody]
        assert torch.equal(hvd.alltoall(mine), torch.cat(rows))
        assert torch.allclose(hvd.reducescatter(mine, op=hvd.Sum), total[2 * me : 2 * me + 2])
        both = hvd.grouped_allreduce([mine, mine.real.clone()], op=hvd.Sum)
        assert torch.allclose(both[0], total) and torch.allclose(both[1], total.real)
        leaf = mine.clone().requires_grad_()
        (hvd.allreduce(leaf, op=hvd.Sum) * total.conj()).real.sum().backward()
        assert torch.allclose(leaf.grad, size * total)
        buffers = {"freqs": mine.clone(), "one": mine[0, 0].clone()}
        hvd.broadcast_parameters(buffers, 0)
        assert torch.equal(buffers["freqs"], everybody[0]) and buffers["one"] == everybody[0][0, 0]
    for op in (hvd.Max, hvd.Min, hvd.Product, hvd.Adasum):
        with pytest.raises(ValueError, match="Complex numbers can be summed and averaged"):
            hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=op)


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


def nothing_is_broadcast_by_halves():
    """An entry that cannot be sent is named before any other is."""
    lazy = torch.nn.LazyLinear(2).weight
    for wrong, reason in ((torch.ones(1).expand(3), "expanded view"), (lazy, "lazy layer")):
        parameters = {"a": torch.full((2,), float(hvd.rank())), "b": wrong}
        with pytest.raises(ValueError, match=f"'b' cannot be broadcast, and nothing was.*{reason}"):
            hvd.broadcast_parameters(parameters, 0)
        assert parameters["a"][0] == hvd.rank()
        hvd.broadcast_parameters({"a": parameters["a"]}, 0)
        assert parameters["a"][0] == 0


def only_one_rank_has_made_its_layers():
    """All ranks hear of it, before anything is sent."""
    last = hvd.size() - 1
    lazy = torch.nn.LazyLinear(2)
    if hvd.rank() == last:
        lazy(torch.ones(1, 3))
    for call in (
        lambda: hvd.broadcast_parameters(lazy.state_dict(), 0),
        lambda: hvd.broadcast_parameters([lazy.weight], last),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD(lazy.parameters(), lr=0.1)),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD(lazy.parameters(), lr=0.1), op=hvd.Adasum),
    ):
        with pytest.raises(ValueError, match=r"ranks? 0.*: .*lazy layer.* send one batch through") as caught:
            call()
        assert len(set(hvd.allgather_object(str(caught.value)))) == 1
    different = {
        "other": (
            {"a": torch.ones(2), f"b{hvd.rank() == 0}": torch.ones(1)},
            r"bTrue' \(rank 0: float32 \[1\]",
        ),
        "shape": (
            {"a": torch.ones(2 + (hvd.rank() == last))},
            r"'a' \(rank.* 0.*\[2\]; rank \d: float32 \[3\]",
        ),
        "type": ({"a": torch.ones(2, dtype=(torch.half, torch.float)[hvd.rank() == 0])}, "float32.*float16"),
        "none": ({} if hvd.rank() == last else {"a": torch.ones(2)}, "'a'.*nothing"),
    }
    for parameters, text in different.values():
        with pytest.raises(hvd.TensorMismatchError, match=f"nothing was sent.*{text}") as caught:
            hvd.broadcast_parameters(parameters, 0)
        assert len(set(hvd.allgather_object(str(caught.value)))) == 1
        assert all(bool((each == 1).all()) for each in parameters.values())


def gradients_of_gradients():
    """The gradient of x -> sum of (operation(x) ** 3), and that of its sum, weighted."""
    size, place = hvd.size(), hvd.rank()
    rows = 2 * size
    all_ranks = [np.random.default_rng(rank).uniform(1, 2, size=rows) for rank in range(size)]
    mine, total, product = all_ranks[place], sum(all_ranks), np.prod(all_ranks, axis=0)
    weights = np.random.default_rng(9).uniform(1, 2, size=rows)  # equal on all ranks
    others = sum(1 / theirs for theirs in all_ranks)
    of_root = 6 * mine if place == 1 else np.zeros(rows)
    cases = {  # averages over the ranks, as upstream has them
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), 6 * total * size * size),
        "product": (
            lambda x: hvd.allreduce(x, op=hvd.Product),
            3 * size * product**3 * (3 * others / mine - 1 / mine**2),
        ),
        "alltoall": (hvd.alltoall, 6 * mine),
        "allgather": (hvd.allgather, 6 * mine / size),
        "reducescatter": (lambda x: hvd.reducescatter(x, op=hvd.Sum), 6 * total * size * size),
        "broadcast": (lambda x: hvd.broadcast(x, 1), of_root / size),
    }
    for name, (operation, expected) in cases.items():
        x = torch.from_numpy(mine.copy()).requires_grad_()
        (first,) = torch.autograd.grad((operation(x) ** 3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * torch.from_numpy(weights)).sum(), x)
        np.testing.assert_allclose(second.numpy(), expected * weights, 1e-12, err_msg=name)


def duplicate():
    if hvd.rank() == 0:
        first = hvd.allreduce_async_(torch.ones(4), name="twice")
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async_(torch.ones(4), name="twice")
    hvd.barrier()
    if hvd.rank() != 0:
        first = hvd.allreduce_async_(torch.ones(4), name="twice")
    assert hvd.synchronize(first).tolist() == [1] * 4
    assert hvd.synchronize(first) is None


def refused():
    """What an operation does not have is the caller's error, before anything is sent."""
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce(torch.ones(2, dtype=torch.bool), op=hvd.Average)
    with pytest.raises(ValueError, match="Adasum"):
        hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)


def disagreements():
    """In the forms that only torch has; returns the texts, and checks that the next operation works."""
    rank = hvd.rank()
    cases = {
        "dimensions": lambda: hvd.allreduce_(torch.ones((2, 2) if rank else (4,)), name="dimensions"),
        "async": lambda: hvd.synchronize(hvd.allreduce_async_(torch.ones(1 + rank), name="async")),
    }
    texts = {}
    for name, case in cases.items():
        with pytest.raises(hvd.TensorMismatchError) as caught:
            case()
        assert isinstance(caught.value, (hvd.HorovodInternalError, ValueError))
        texts[name] = str(caught.value)
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    return texts


CHECKS = (
    *(factors, layouts, complex_numbers, duplicate, refused),
    *(nothing_is_broadcast_by_halves, only_one_rank_has_made_its_layers, gradients_of_gradients),
)


def ranks_collectives():
    """Everything in one launch; a check returns nothing or raises AssertionError."""
    hvd.init()
    for check in CHECKS:
        check()
        hvd.barrier()
    return disagreements()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives(run_ranks, ranks, transport):
    results = run_ranks(ranks, ranks_collectives, env={"HOROVOD_TRANSPORT": transport})
    assert all(texts == results[0] for texts in results)  # the same errors on every rank
    for name, text in results[0].items():
        assert name in text, text
        assert "rank" in text and "0" in text and "1" in text, text
