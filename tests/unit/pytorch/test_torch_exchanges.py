"""Alltoall, reducescatter, grouped allgather, Adasum and sparse tensors, on ranks that are threads."""

import pytest
import torch
from fake_results import ADASUM, NAMES, adasum, rows_of, same

import horovod.torch as hvd

DTYPES = [getattr(torch, name) for name in NAMES]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def values(rank, rows, dtype=torch.float32):
    numbers = torch.arange(2 * rows).reshape(rows, 2) + 20 * rank
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_alltoall_of_equal_parts(job, dtype):
    inputs = [values(rank, 6, dtype) for rank in range(3)]

    def program(rank):
        result = hvd.alltoall(inputs[rank])
        received, sources = hvd.synchronize(hvd.alltoall_async(inputs[rank], name="a"))
        assert same(received, result)
        assert (sources.dtype, sources.tolist()) == (torch.int32, [2, 2, 2])
        return result

    for rank, result in enumerate(job(3).run_all(program)):
        assert same(result, torch.cat([tensor[2 * rank : 2 * rank + 2] for tensor in inputs]))


@pytest.mark.parametrize("form", [list, tuple, *INTEGERS], ids=str)
def test_alltoall_of_given_parts(job, form):
    """Rank r sends (r + s) % 3 rows to rank s, and keeps one row back."""
    splits = [[(rank + to) % 3 for to in range(3)] for rank in range(3)]
    inputs = [values(rank, 4) for rank in range(3)]

    def program(rank):
        given = (
            torch.tensor(splits[rank], dtype=form) if isinstance(form, torch.dtype) else form(splits[rank])
        )
        return hvd.alltoall(inputs[rank], given, name="a")

    for rank, (result, sources) in enumerate(job(3).run_all(program)):
        parts = [tensor.split([*rows, 1])[rank] for tensor, rows in zip(inputs, splits, strict=True)]
        assert torch.equal(result, torch.cat(parts))
        assert (sources.dtype, sources.tolist()) == (torch.int32, [rows[rank] for rows in splits])


def test_alltoall_of_nothing(job):
    def program(rank):
        result, sources = hvd.alltoall(torch.empty(0, 3), [0, 0])
        return result.shape, sources.tolist(), hvd.alltoall(torch.empty(0, 3)).shape

    assert job(2).run_all(program) == [((0, 3), [0, 0], (0, 3))] * 2


@pytest.mark.parametrize(
    ("tensor", "splits", "words"),
    [
        (torch.ones(4), [1], "Number of entries in splits does not equal number of workers"),
        (torch.ones(4), [1, 1, 1], "Number of entries in splits does not equal number of workers"),
        (torch.ones(4), [5, -1], "negative"),
        (torch.ones(4), [3, 2], "greater than the first dimension"),
        (torch.ones(4), torch.tensor([2.0, 2.0]), "float32"),
        (torch.ones(4), torch.tensor([[2, 2]]), "integers"),
        (torch.ones(4), torch.tensor(4), "integers"),
        (torch.ones(4), [2.0, 2.0], "integers"),
        (torch.ones(4), 2, "integers"),
        (torch.ones(5), None, "5, is not divisible"),
        (torch.tensor(1.0), None, "scalar"),
    ],
)
def test_wrong_alltoall(two, tensor, splits, words):
    for function in (hvd.alltoall, hvd.alltoall_async):
        with pytest.raises(ValueError, match=words):
            function(tensor, splits)
    with pytest.raises(ValueError, match=words):
        hvd.alltoall(tensor.clone().requires_grad_(), splits)
    assert two.requests == []


def test_many_received_rows_are_counted_in_64_bits(two, monkeypatch):
    monkeypatch.setattr(two, "wait", lambda handle: [hollow(torch.ones(1)), hollow(torch.tensor([2**31, 1]))])

    def hollow(tensor):
        from fake_core import Output

        return Output(tensor)

    _, sources = hvd.alltoall(torch.ones(2), [1, 1])
    assert (sources.dtype, sources.tolist()) == (torch.int64, [2**31, 1])


@pytest.mark.parametrize("op", ["Sum", "Average", "Min", "Max", "Product"])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 7])
def test_reducescatter(job, op, rows):
    inputs = [values(rank, rows) / 8 for rank in range(3)]

    def program(rank):
        one = hvd.reducescatter(inputs[rank], op=getattr(hvd, op))
        other = hvd.synchronize(hvd.reducescatter_async(inputs[rank], "r", getattr(hvd, op)))
        group = hvd.grouped_reducescatter([inputs[rank], inputs[rank]], op=getattr(hvd, op))
        assert all(torch.equal(one, tensor) for tensor in (other, *group))
        return one

    stack = torch.stack(inputs)
    reduce = {"Sum": stack.sum, "Average": stack.mean, "Product": stack.prod}.get(op)
    expected = reduce(0) if reduce else getattr(stack, "amin" if op == "Min" else "amax")(0)
    for rank, result in enumerate(job(3).run_all(program)):
        torch.testing.assert_close(result, expected.narrow(0, *rows_of(rank, 3, rows)))


def test_reducescatter_arguments(two):
    handle = hvd.reducescatter_async(torch.ones(2), "n", hvd.Sum, hvd.global_process_set, 0.5, 4.0)
    request = two.requests[-1]
    assert (request.name, request.op, request.prescale, request.postscale) == ("n", hvd.Sum, 0.5, 4.0)
    assert hvd.synchronize(handle).tolist() == [4.0]
    result = hvd.reducescatter(torch.ones(2), compression=hvd.Compression.fp16)
    assert (result.dtype, two.requests[-1].tensors[0][2]) == (torch.float32, NAMES.index("float16"))
    results = hvd.grouped_reducescatter([torch.ones(2)] * 2, compression=hvd.Compression.bf16)
    assert [tensor.dtype for tensor in results] == [torch.float32] * 2
    assert hvd.grouped_reducescatter([]) == []


def test_wrong_reducescatter(two):
    for function in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(NotImplementedError, match="Adasum"):
            function(torch.ones(2), op=hvd.Adasum)
        with pytest.raises(ValueError, match="scalar"):
            function(torch.tensor(1.0))
        with pytest.raises(ValueError, match="bool"):
            function(torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="scalar"):
        hvd.grouped_reducescatter([torch.ones(2), torch.tensor(1.0)])
    with pytest.raises(ValueError, match="one device"):
        ops_on_two_devices()
    assert two.requests == []


def ops_on_two_devices():
    from horovod.torch.operations import ops

    class Elsewhere(torch.Tensor):
        pass

    original = ops.glue.device
    ops.glue.device = lambda tensor: "elsewhere" if isinstance(tensor, Elsewhere) else original(tensor)
    try:
        hvd.grouped_allgather([torch.ones(2), torch.ones(2).as_subclass(Elsewhere)])
    finally:
        del ops.glue.device


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_grouped_allgather(job, dtype):
    inputs = [[values(rank, rank + 1, dtype), values(rank, 2 - rank, dtype)] for rank in range(3)]

    def program(rank):
        handle = hvd.grouped_allgather_async(iter(inputs[rank]), "g")
        return hvd.synchronize(handle), hvd.grouped_allgather(inputs[rank])

    expected = [torch.cat([tensors[i] for tensors in inputs]) for i in range(2)]
    three = job(3)
    for results in three.run_all(program):
        for result in results:
            assert all(same(a, b) for a, b in zip(result, expected, strict=True))
    assert {len(request.tensors) for _, request in three.log} == {2}


def test_wrong_grouped_allgather(two):
    with pytest.raises(ValueError, match="scalar"):
        hvd.grouped_allgather([torch.ones(1), torch.tensor(1.0)])
    assert hvd.grouped_allgather([]) == []
    assert two.requests == []


@pytest.mark.parametrize("form", ["allreduce", "allreduce_", "allreduce_async", "allreduce_async_"])
@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_adasum_is_for_floating_point(two, form, dtype):
    tensor = torch.ones(2, dtype=dtype)
    grouped = getattr(hvd, "grouped_" + form)
    if not dtype.is_floating_point:
        with pytest.raises(ValueError, match="floating-point"):
            getattr(hvd, form)(tensor, op=hvd.Adasum)
        with pytest.raises(ValueError, match="floating-point"):
            grouped([torch.ones(1), tensor], op=hvd.Adasum)
        assert two.requests == []
        return
    result = getattr(hvd, form)(tensor, op=hvd.Adasum)
    result = hvd.synchronize(result) if "async" in form else result
    assert result.tolist() == [1, 1]  # what equal gradients become
    result = grouped([tensor, tensor.clone()], op=hvd.Adasum)
    result = hvd.synchronize(result) if "async" in form else result
    assert [request.op for request in two.requests] == [ADASUM] * 2


def test_adasum_over_a_set(job, monkeypatch):
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    inputs = [values(rank, 2, torch.float64) for rank in range(3)]

    def program(rank):
        pair = hvd.add_process_set([0, 2])
        return hvd.allreduce(inputs[rank], op=hvd.Adasum, process_set=pair) if rank != 1 else None

    results = job(3).run_all(program)
    torch.testing.assert_close(results[0], adasum(inputs[0], inputs[2]))


def sparse(rank, dtype=torch.float32):
    indices = torch.tensor([[rank, 1, rank]])  # a row twice: not coalesced
    rows = torch.arange(6).reshape(3, 2).to(dtype) * (rank + 1)
    return torch.sparse_coo_tensor(indices, rows, (4, 2), check_invariants=True)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_sparse_allreduce(job, op, dtype):
    inputs = [sparse(rank, dtype) for rank in range(3)]
    inputs[2] = torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0, 2, dtype=dtype), (4, 2))
    inputs[0] = inputs[0].coalesce()

    def program(rank):
        finish = hvd.sparse_allreduce_async(inputs[rank], "s", op)
        return finish()

    total = sum(tensor.to_dense().double() for tensor in inputs)
    expected = total if op == hvd.Sum else total / 3
    for result in job(3).run_all(program):
        assert (result.layout, result.dtype, result.shape) == (torch.sparse_coo, dtype, (4, 2))
        dense = result.to_dense()
        if not dtype.is_floating_point:
            expected = expected.trunc()
        torch.testing.assert_close(
            dense.double(), expected, rtol=0.02 if dtype == torch.bfloat16 else 1e-6, atol=0
        )
        torch.testing.assert_close(result.coalesce().to_dense(), dense)


def test_sparse_scalars_and_negative_totals(job):
    def program(rank):
        tensor = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 1]]), torch.tensor([-3, rank]), (3, 2))
        return hvd.sparse_allreduce_async(tensor, None, hvd.Average)().to_dense().tolist()

    assert job(2).run_all(program) == [[[0, -3], [0, 0], [0, 0]]] * 2


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_sparse_complex_numbers(job, op):
    inputs = [sparse(rank, torch.complex64) * (1 + 2j) for rank in range(2)]
    expected = sum(tensor.to_dense() for tensor in inputs) / (2 if op == hvd.Average else 1)
    for result in job(2).run_all(lambda rank: hvd.sparse_allreduce_async(inputs[rank], "s", op)()):
        assert torch.equal(result.to_dense(), expected)


def test_wrong_sparse_allreduce(two):
    with pytest.raises(ValueError, match="Max"):
        hvd.sparse_allreduce_async(sparse(0), "s", hvd.Max)
    with pytest.raises(ValueError, match=r"torch\.strided"):
        hvd.sparse_allreduce_async(torch.ones(2), "s", hvd.Sum)
    with pytest.raises(ValueError, match="list"):
        hvd.sparse_allreduce_async([1], "s", hvd.Sum)
    assert two.requests == []


@pytest.mark.parametrize(
    ("give", "kind"),
    [
        (lambda rank: rank, float),
        (lambda rank: float(rank), float),
        (lambda rank: torch.tensor([rank, 2.0 * rank]), torch.Tensor),
        (lambda rank: torch.tensor([rank, 2 * rank]), torch.Tensor),
    ],
    ids=["int", "float", "tensor", "integers"],
)
def test_global_mean(job, give, kind):
    for result in job(2).run_all(lambda rank: hvd.metric.get_global_mean(give(rank), "m")):
        assert isinstance(result, kind)
        assert (result == 0.5) if kind is float else (result.tolist() == [0.5, 1.0])


def test_global_mean_of_complex_numbers(job):
    results = job(2).run_all(lambda rank: hvd.metric.get_global_mean(torch.tensor([1 + 1j, 1j]) * rank, "m"))
    assert [result.tolist() for result in results] == [[0.5 + 0.5j, 0.5j]] * 2


def test_global_mean_of_numpy(job):
    numpy = pytest.importorskip("numpy", reason="arrays of numpy are not given where there is no numpy")

    def program(rank):
        results = [numpy.float32(rank), numpy.arange(2) * rank, numpy.ones((2, 2), "float32")[:, 1] * rank]
        results.append(numpy.array([2j]) * rank)
        return [hvd.metric.get_global_mean(value) for value in results]

    number, integers, floats, complex_numbers = job(2).run_all(program)[1]
    assert (number, integers.tolist(), integers.dtype) == (0.5, [0, 0.5], numpy.float64)
    assert (floats.tolist(), floats.dtype) == ([0.5, 0.5], numpy.float32)
    assert complex_numbers.tolist() == [1j]


def test_results_stay_on_the_cpu_whatever_the_default_device(core):
    torch.set_default_device("meta")
    try:
        ones = torch.ones(2, 3, device="cpu")
        assert hvd.allreduce(ones).tolist() == [[1, 1, 1], [1, 1, 1]]
        assert hvd.allreduce(ones.t()).is_cpu
        assert hvd.metric.get_global_mean(2.0) == 2.0
        assert hvd.allgather_object({"a": 1}) == [{"a": 1}]
    finally:
        torch.set_default_device(None)


def test_empty_splits_mean_equal_ones(core):
    received, splits = hvd.alltoall(torch.arange(3), splits=torch.tensor([], dtype=torch.int32))
    assert received.tolist() == [0, 1, 2] and splits.tolist() == [3]
