"""The operations on torch tensors over the fake core: what reaches the core, and what comes back."""

import gc
import importlib.util
import weakref

import pytest
import torch
from fake_results import AVERAGE, MAX, NAMES, SUM, same

import horovod.torch as hvd
from horovod.common.exceptions import TensorMismatchError
from horovod.torch.operations import ops

DTYPES = [getattr(torch, name) for name in NAMES]
FLOAT8 = torch.float8_e4m3fn


def values(dtype, shape=(2, 3)):
    numbers = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype)


@pytest.fixture
def two(core):
    """A job of two ranks; the other sends twice what this one sends."""
    core.size = 2
    core.peers = lambda request, own: [own, [(2.0 * t.to(torch.float64)).to(t.dtype) for t in own]]
    return core


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
@pytest.mark.parametrize("form", ["allreduce", "allreduce_", "allreduce_async", "allreduce_async_"])
def test_allreduce_forms(two, dtype, form):
    tensor = values(dtype)
    before = tensor.clone()
    result = getattr(hvd, form)(tensor, op=hvd.Sum)
    if "async" in form:
        assert not hvd.poll(result)
        handle, result = result, hvd.synchronize(result)
        assert hvd.poll(handle)
        assert hvd.synchronize(handle) is None
    expected = (before.to(torch.float64) * (1 if dtype == torch.bool else 3)).to(dtype)
    assert same(result, expected)
    if form.endswith("_"):
        assert result is tensor
    else:
        assert same(tensor, before)


@pytest.mark.parametrize("form", ["allreduce", "allreduce_", "allreduce_async", "allreduce_async_"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])  # the short way and the long one
def test_arguments_reach_the_core(core, form, dtype):
    tensor = values(dtype)
    handle = getattr(hvd, form)(tensor, name="x", op=hvd.Max, prescale_factor=0.5, postscale_factor=4)
    request = core.requests[0]
    assert (request.name, request.op, request.prescale, request.postscale) == ("x", MAX, 0.5, 4)
    assert request.tensors[0][2:] == (NAMES.index(str(dtype)[6:]), (2, 3))
    hvd.synchronize(handle) if "async" in form else None


def test_default_is_average_and_unnamed(core):
    hvd.allreduce(values(torch.float32))
    assert (core.requests[0].op, core.requests[0].name) == (AVERAGE, None)


def test_average_argument(two):
    with pytest.warns(DeprecationWarning):
        assert hvd.allreduce(torch.ones(2), average=False).tolist() == [3, 3]
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce_(torch.ones(2), average=True, op=hvd.Sum)


def test_compression(two):
    result = hvd.allreduce(torch.ones(3), compression=hvd.Compression.fp16)
    assert (result.dtype, result.tolist()) == (torch.float32, [1.5] * 3)
    assert two.requests[-1].tensors[0][2] == NAMES.index("float16")
    result = hvd.grouped_allreduce(
        [torch.ones(3), torch.ones(2, dtype=torch.int32)], compression=hvd.Compression.bf16
    )
    assert [tensor.dtype for tensor in result] == [torch.float32, torch.int32]
    assert [spec[2] for spec in two.requests[-1].tensors] == [NAMES.index("bfloat16"), NAMES.index("int32")]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(4, 6).t(),
        torch.ones(8, 8)[::2, 1::3],
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "channels_last"],
)
def test_non_contiguous(two, tensor):
    tensor = tensor.clone(memory_format=torch.preserve_format) if tensor.dim() == 4 else tensor
    expected = tensor * 3
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), expected)
    assert torch.equal(hvd.broadcast(tensor, 1), expected - tensor)
    laid_out = torch.empty_like(tensor).stride()  # as the results of torch's own operations
    assert hvd.allreduce(tensor).stride() == hvd.broadcast(tensor, 1).stride() == laid_out
    assert torch.equal(hvd.allgather(tensor), torch.cat([tensor, 2 * tensor]))
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor, expected)


def test_in_place_on_a_view_leaves_the_rest(two):
    whole = torch.ones(4, 4)
    hvd.allreduce_(whole[:, 1], op=hvd.Sum)
    assert whole[:, 1].tolist() == [3] * 4
    assert whole.sum() == 12 + 12


def test_expanded(two):
    tensor = torch.ones(1, 3).expand(2, 3)
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), torch.full((2, 3), 3.0))
    with pytest.raises(ValueError, match="contiguous"):
        hvd.allreduce_(tensor)
    assert len(two.requests) == 1


def test_negated_view(two):
    tensor = torch.conj(torch.tensor([1 + 2j])).imag
    assert tensor.is_neg() and tensor.is_contiguous()
    assert hvd.allreduce(tensor, op=hvd.Sum).tolist() == [-6]
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor.tolist() == [-6]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalar_and_empty(two, shape):
    tensor = torch.ones(shape)
    assert hvd.allreduce(tensor, op=hvd.Sum).shape == shape
    assert torch.equal(hvd.allreduce_(tensor.clone(), op=hvd.Sum), tensor * 3)
    assert torch.equal(hvd.broadcast(tensor, 1), tensor * 2)


def test_leaf_that_requires_gradient_in_place(two):
    leaf = torch.nn.Parameter(torch.ones(3))
    assert hvd.allreduce_(leaf, op=hvd.Sum) is leaf
    column = torch.nn.Parameter(torch.ones(3, 2).t())
    assert hvd.broadcast_(column, 1) is column
    assert (leaf.tolist(), column.sum().item()) == ([3] * 3, 12)


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (torch.ones(2).to(torch.float8_e4m3fnuz), ValueError),
        (torch.eye(3).to_sparse(), ValueError),
        (torch.ones(2, device="meta"), ValueError),
        ([1.0, 2.0], TypeError),
        (None, TypeError),
    ],
)
def test_wrong_tensors_are_refused_before_submission(core, tensor, error):
    for function in (hvd.allreduce_, hvd.allreduce_async, hvd.allgather_async, hvd.allreduce):
        with pytest.raises(error, match=r"not supported|meta device|torch\.Tensor"):
            function(tensor)
    with pytest.raises(error):
        hvd.broadcast_(tensor, 0)
    with pytest.raises(error):
        hvd.grouped_allreduce_([torch.ones(2), tensor])
    assert core.requests == []


def test_a_torch_without_a_type_does_without_it(monkeypatch):
    monkeypatch.delattr(torch, "float8_e4m3fn")
    module = importlib.util.find_spec("horovod.torch.placements")
    older = importlib.util.module_from_spec(module)
    module.loader.exec_module(older)
    assert [dtype for dtype in DTYPES if dtype not in older.DTYPES] == [FLOAT8]


@pytest.mark.parametrize("shape", [(), (0, 2), (3, 2)])
def test_floats_of_eight_bits_come_from_the_core_as_they_are(core, shape):
    tensor = torch.full(shape, 2.0).to(FLOAT8)
    gathered = hvd.allgather(tensor) if shape else hvd.allreduce(tensor)
    assert (gathered.dtype, gathered.shape) == (FLOAT8, shape)
    assert same(gathered, tensor)


def test_floats_of_eight_bits_are_scaled():
    for factor, expected in ((0.5, 1.0), (1000.0, 2000.0)):
        scaled = ops.glue.scaled(torch.tensor([2.0]).to(torch.float8_e5m2), factor)
        assert same(scaled, torch.tensor([expected]).to(torch.float8_e5m2))


def test_bool_has_no_average(core):
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce(torch.ones(2, dtype=torch.bool))
    assert hvd.allreduce(torch.ones(2, dtype=torch.bool), op=hvd.Min).tolist() == [True, True]


def test_other_process_sets_are_refused(core):
    with pytest.raises(ValueError, match="global_process_set"):
        hvd.allreduce_(torch.ones(2), process_set=hvd.ProcessSet([0]))
    with pytest.raises(TypeError, match="ProcessSet"):
        hvd.broadcast(torch.ones(2), 0, process_set=[0])
    assert hvd.allreduce(torch.ones(2), process_set=hvd.global_process_set).tolist() == [1, 1]


def test_group_is_one_request(two):
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.float64)]
    handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name="g")
    assert [len(request.tensors) for request in two.requests] == [2]
    result = hvd.synchronize(handle)
    assert all(a is b for a, b in zip(result, tensors, strict=True))
    assert [tensor.tolist() for tensor in tensors] == [[3] * 2, [3] * 3]


def test_group_forms(two):
    def tensors():
        return [torch.ones(2), torch.ones(2, 2).t(), torch.ones(1, dtype=torch.bool)]

    expected = [[3] * 2, [[3] * 2] * 2, [True]]
    for function in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
        assert [tensor.tolist() for tensor in function(tensors(), op=hvd.Sum)] == expected
    for function in (hvd.grouped_allreduce_async, hvd.grouped_allreduce_async_):
        result = hvd.synchronize(function(iter(tensors()), op=hvd.Sum))
        assert [tensor.tolist() for tensor in result] == expected


def test_empty_group(core):
    assert hvd.grouped_allreduce([]) == []
    handle = hvd.grouped_allreduce_async_([])
    assert hvd.poll(handle)
    assert hvd.synchronize(handle) == []
    assert core.requests == []


def test_allgather(two):
    two.peers = lambda request, own: [own, [torch.cat([own[0], own[0]])]]
    assert hvd.allgather(torch.tensor([[1.0, 2.0]])).tolist() == [[1, 2]] * 3
    with pytest.raises(ValueError, match="scalar"):
        hvd.allgather(torch.tensor(1.0))


def test_broadcast_forms(two):
    for form in ("broadcast", "broadcast_", "broadcast_async", "broadcast_async_"):
        tensor = torch.ones(2)
        result = getattr(hvd, form)(tensor, 1, name="b")
        result = hvd.synchronize(result) if "async" in form else result
        assert result.tolist() == [2, 2]
        assert (result is tensor) == form.endswith("_")
    assert two.requests[-1].root == 1
    for root in (-1, 2):
        with pytest.raises(ValueError, match="root_rank"):
            hvd.broadcast(torch.ones(1), root)


def test_barrier(core):
    hvd.barrier()
    assert (core.requests[0].kind, core.requests[0].tensors) == (core.BARRIER, [])


def test_operation_before_init(core):
    core.up = False
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.allreduce_(torch.ones(2))


def test_tensors_live_until_the_operation_is_complete(core):
    tensor = torch.ones(3)
    alive = weakref.ref(tensor)
    handle = hvd.allreduce_async_(tensor)
    other = hvd.allreduce_async(torch.ones(4))
    del tensor
    gc.collect()
    assert alive() is not None
    hvd.synchronize(handle)
    hvd.synchronize(other)
    gc.collect()
    assert alive() is None
    assert ops._handle_map == {}


def test_blocking_operation_gives_the_core_its_tensor_to_keep(core, monkeypatch):
    given = []
    monkeypatch.setattr(core, "run", lambda *arguments: given.append(arguments))
    tensor = torch.ones(2)
    hvd.allreduce_(tensor)
    assert given[0][8] is tensor


def test_failure_forgets_the_handle(core):
    handle = hvd.allreduce_async_(torch.ones(3))
    core.requests[0].error = TensorMismatchError("shapes")
    with pytest.raises(TensorMismatchError, match="shapes"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    assert ops._handle_map == {}


def test_interrupted_wait_keeps_the_tensor(core, monkeypatch):
    handle = hvd.allreduce_async_(torch.ones(3))
    wait = core.wait

    def interrupted(handle, timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hvd.synchronize(handle)
    monkeypatch.setattr(core, "wait", wait)
    assert hvd.synchronize(handle).tolist() == [1, 1, 1]


def test_unknown_handle(core):
    assert hvd.synchronize(12345) is None
    assert hvd.poll(12345) is True


def test_allreduce_gradient(two):
    two.peers = lambda request, own: [own, own]
    tensor = torch.ones(3, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, name="t").sum().backward()
    assert tensor.grad.tolist() == [2, 2, 2]
    assert [(request.name, request.op) for request in two.requests] == [("t", SUM), ("t.gradient", SUM)]


def test_grouped_allreduce_gradient(two):
    two.peers = lambda request, own: [own, own]
    tensors = [torch.ones(2, requires_grad=True), torch.ones(3)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum, compression=hvd.Compression.fp16)
    (results[0].sum() * 2).backward()
    assert tensors[0].grad.tolist() == [4, 4]


def test_allgather_gradient(two):
    two.rank = 1
    two.peers = lambda request, own: [[own[0][:1] * 5], own] if own[0].dtype == torch.float32 else [own, own]
    tensor = torch.ones(2, requires_grad=True)
    result = hvd.allgather(tensor)
    assert result.tolist() == [5, 1, 1]
    sent = []
    two.peers = lambda request, own: sent.append(own) or [rows(own, 1), own]

    def rows(own, count):
        rank_and_rows = bytes(8) + count.to_bytes(8, "little")
        number = torch.tensor(list(rank_and_rows), dtype=torch.uint8)
        return [number] if own[0].dtype == torch.uint8 else own

    (result * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert tensor.grad.tolist() == [2, 3]


def test_a_result_that_is_dropped_is_freed_at_once(two):
    two.peers = lambda request, own: [own, own]
    tensor = torch.ones(2, requires_grad=True)
    gc.disable()
    try:
        for function in (hvd.allreduce, hvd.allgather, lambda t: hvd.alltoall(t, [1, 1])[0]):
            result = function(tensor)
            alive = weakref.ref(result)
            del result
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("rank", "expected"), [(0, [1, 1]), (1, [0, 0])])
def test_broadcast_gradient(two, rank, expected):
    two.rank = rank
    two.peers = None
    tensor = torch.ones(2, requires_grad=True)
    hvd.broadcast(tensor, 0).sum().backward()
    assert tensor.grad.tolist() == expected


def test_no_gradient_is_recorded_where_none_is_wanted(core):
    tensor = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(tensor).requires_grad
    assert not hvd.synchronize(hvd.allreduce_async(tensor)).requires_grad


DIFFERENTIABLE = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
GROUPED = ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter")


@pytest.mark.parametrize("operation", DIFFERENTIABLE + GROUPED)
def test_forward_differentiation_is_refused(two, operation):
    arguments = {"root_rank": 0} if operation == "broadcast" else {}
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(RuntimeError, match="forward mode AD"):
            getattr(hvd, operation)([dual, torch.ones(2)] if operation in GROUPED else dual, **arguments)
        assert same(hvd.allreduce(torch.ones(2), op=hvd.Sum), 3 * torch.ones(2))
