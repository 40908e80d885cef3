"""int8, top-k and PowerSGD on several ranks in one process: their algebra, their bytes, error feedback."""

import hypothesis
import pytest
import torch
from compression_ranks import reduce_together
from hypothesis import strategies
from small_models import backward, model, wrapped

import horovod.torch as hvd
from horovod.common.reduce_ops import Average, Sum
from horovod.torch.compression import Compression, StatefulCompressor

COMPRESSIONS = {
    "int8": Compression.int8,
    "topk": Compression.topk.configure(ratio=0.1),
    "powersgd": Compression.powersgd.configure(rank=2),
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS)


def gradients(ranks, shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(ranks)]


def new(compression, ranks):
    return [compression() for _ in range(ranks)]


def int8_blocks(flat):
    """What int8 makes of a tensor, written as plainly as possible."""
    result = []
    for block in flat.split(1024):
        scale = block.abs().max().item() / 127
        result += [round(value / scale) * scale if scale else 0.0 for value in block.tolist()]
    return torch.tensor(result, dtype=torch.float64)


@pytest.mark.parametrize("op", [Average, Sum])
@pytest.mark.parametrize("count", [1000, 1024, 2500])
def test_int8(op, count):
    inputs = gradients(3, (count,))
    inputs[1] *= 1000  # scales that differ between ranks
    results, _ = reduce_together(new(Compression.int8, 3), inputs, op)
    expected = sum(int8_blocks(tensor.double()) for tensor in inputs) / (3 if op == Average else 1)
    for result in results:
        # One step of a scale is 0.4 % of the block; nothing near that may be missing.
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-3)
        assert torch.equal(result, results[0])


def test_int8_is_exact_for_what_it_can_express():
    numbers = torch.arange(-127, 128).float() * 0.5
    results, _ = reduce_together(new(Compression.int8, 2), [numbers, numbers.flip(0) * 4], Sum)
    assert torch.equal(results[0], numbers + numbers.flip(0) * 4)


@pytest.mark.parametrize("op", [Average, Sum])
def test_topk(op):
    inputs = gradients(3, (20, 30))
    results, _ = reduce_together(new(COMPRESSIONS["topk"], 3), inputs, op)
    expected = torch.zeros(600)
    for tensor in inputs:
        flat = tensor.flatten()
        greatest = sorted(range(600), key=lambda at, flat=flat: -abs(flat[at].item()))[:60]
        for at in greatest:
            expected[at] += flat[at]
    expected = expected.view(20, 30) / (3 if op == Average else 1)
    for result in results:
        torch.testing.assert_close(result, expected)
        assert torch.equal(result, results[0])


def test_topk_sends_at_least_one():
    results, sent = reduce_together(new(Compression.topk, 1), [torch.tensor([1.0, -7.0, 2.0])])
    assert results[0].tolist() == [0.0, -7.0, 0.0] and sent == 8


@pytest.mark.parametrize("op", [Average, Sum])
def test_powersgd_is_exact_for_matrices_of_its_rank(op):
    generator = torch.Generator().manual_seed(2)
    right = torch.randn(2, 40, generator=generator, dtype=torch.float64)
    inputs = [torch.randn(30, 2, generator=generator, dtype=torch.float64) @ right for _ in range(3)]
    expected = sum(inputs) / (3 if op == Average else 1)
    compressors = new(COMPRESSIONS["powersgd"], 3)
    results, _ = reduce_together(compressors, [tensor.view(30, 4, 10) for tensor in inputs], op)
    for result in results:
        torch.testing.assert_close(result, expected.view(30, 4, 10), rtol=1e-9, atol=1e-9)
        assert torch.equal(result, results[0])


def test_powersgd_approaches_the_best_approximation():
    """The warm start makes the power method converge while the gradient stays the same."""
    left, _, right = torch.linalg.svd(gradients(1, (30, 40), torch.float64)[0])
    singular = 0.7 ** torch.arange(30, dtype=torch.float64)
    matrix = left * singular @ right[:30]
    best = singular[2:].square().sum().sqrt()
    compressors = new(COMPRESSIONS["powersgd"], 1)
    errors = []
    for _ in range(30):
        compressors[0].residual = None  # else the target moves
        (result,), _ = reduce_together(compressors, [matrix])
        errors.append((result - matrix).norm() / best)
    assert errors[0] > 1.02
    assert 0.999 < errors[-1] < 1.001


def test_powersgd_recovers_from_zeros():
    compressors = new(COMPRESSIONS["powersgd"], 2)
    zeros = [torch.zeros(16, 16)] * 2
    assert not reduce_together(compressors, zeros)[0][0].any()
    assert not reduce_together(compressors, zeros)[0][0].any()
    matrix = torch.outer(torch.arange(16.0), torch.ones(16))
    torch.testing.assert_close(reduce_together(compressors, [matrix] * 2)[0][0], matrix)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_shape_and_type_are_kept(compression, dtype):
    inputs = gradients(2, (32, 4, 12), dtype)
    copies = [tensor.clone() for tensor in inputs]
    results, sent = reduce_together(new(compression, 2), [t.transpose(0, 1) for t in inputs])
    assert all(result.shape == (4, 32, 12) and result.dtype == dtype for result in results)
    assert all(map(torch.equal, inputs, copies))
    assert torch.equal(results[0], results[1])
    assert sent <= inputs[0].numel() * dtype.itemsize


@EVERY
@pytest.mark.parametrize(
    "values",
    [torch.arange(6), torch.ones(3, dtype=torch.bool), torch.ones(0, 4), torch.ones(1)],
    ids=["int64", "bool", "empty", "one element"],
)
def test_what_gains_nothing_travels_as_it_is(compression, values):
    compressors = new(compression, 2)
    results, sent = reduce_together(compressors, [values] * 2, Sum)
    assert sent == values.numel() * values.element_size()
    assert torch.equal(results[0], torch.stack([values] * 2).sum(0, dtype=values.dtype))
    assert compressors[0].residual is None


@pytest.mark.parametrize("shape", [(100,), (6, 3)])
def test_powersgd_leaves_vectors_and_small_matrices(shape):
    inputs = gradients(2, shape)
    results, _ = reduce_together(new(COMPRESSIONS["powersgd"], 2), inputs)
    torch.testing.assert_close(results[0], (inputs[0] + inputs[1]) / 2)


@pytest.mark.parametrize(
    ("compression", "dtype", "ratio"),
    [
        ("int8", torch.float32, 3.98),
        ("int8", torch.bfloat16, 1.99),
        ("topk", torch.float32, 5.0),  # a tenth of the elements, each with its index
        ("powersgd", torch.float32, 512 * 1024 / (2 * (512 + 1024))),
    ],
)
def test_bytes(compression, dtype, ratio):
    inputs = gradients(2, (512, 1024), dtype)
    _, sent = reduce_together(new(COMPRESSIONS[compression], 2), inputs)
    assert inputs[0].numel() * dtype.itemsize / sent == pytest.approx(ratio, rel=2e-3)


@EVERY
@hypothesis.settings(max_examples=15, derandomize=True)
@hypothesis.given(
    seed=strategies.integers(0, 10**6),
    ranks=strategies.integers(1, 3),
    shape=strategies.sampled_from([(2, 30), (24, 24), (5, 8, 6)]),
    steps=strategies.integers(1, 6),
    op=strategies.sampled_from([Average, Sum]),
)
def test_nothing_is_lost(compression, seed, ranks, shape, steps, op):
    """What has arrived, and what the residuals hold, are together all gradients there were."""
    compressors = new(compression, ranks)
    divisor = ranks if op == Average else 1
    arrived = torch.zeros(shape, dtype=torch.float64)
    produced = torch.zeros(shape, dtype=torch.float64)
    for step in range(steps):
        inputs = gradients(ranks, shape, torch.float64, seed + step)
        produced += sum(inputs) / divisor
        arrived += reduce_together(compressors, inputs, op)[0][0]
    held = sum(torch.as_tensor(0 if c.residual is None else c.residual) for c in compressors) / divisor
    torch.testing.assert_close(arrived + held, produced, rtol=1e-5, atol=1e-5)


@EVERY
def test_the_residual_stays_bounded(compression):
    """The mean of what arrives approaches the gradient, whatever a single step leaves out."""
    inputs = gradients(2, (24, 24), torch.float64)
    target = sum(inputs) / 2
    compressors = new(compression, 2)
    errors, total = {}, torch.zeros_like(target)
    for step in range(1, 201):
        total += reduce_together(compressors, inputs)[0][0]
        errors[step] = ((total / step - target).norm() / target.norm()).item()
    assert errors[200] < 0.12 and errors[200] < errors[50] / 2


@EVERY
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_overflow_is_seen_by_all_and_forgotten(compression, bad):
    compressors = new(compression, 2)
    inputs = gradients(2, (24, 24))
    inputs[1][3, 4] = bad
    results, _ = reduce_together(compressors, inputs)
    assert not any(result.isfinite().all() for result in results)
    for _ in range(2):
        results, _ = reduce_together(compressors, gradients(2, (24, 24)))
        assert all(result.isfinite().all() and result.any() for result in results)


@EVERY
def test_a_failure_keeps_the_residual(compression):
    compressors = new(compression, 2)
    reduce_together(compressors, gradients(2, (24, 24)))
    before = [compressor.residual.clone() for compressor in compressors]

    generators = [
        c.reduce(g, "g", _Nowhere()) for c, g in zip(compressors, gradients(2, (24, 24)), strict=True)
    ]
    for generator in generators:
        next(generator)
        with pytest.raises(RuntimeError, match="gone"):
            generator.throw(RuntimeError("gone"))
    assert all(torch.equal(c.residual, old) for c, old in zip(compressors, before, strict=True))


class _Nowhere:
    def allreduce_async(self, *_):
        return 0

    allgather_async = allreduce_async


@EVERY
def test_a_gradient_of_another_shape_starts_afresh(compression):
    compressors = new(compression, 1)
    reduce_together(compressors, gradients(1, (24, 24)))
    (result,), _ = reduce_together(compressors, gradients(1, (30, 20)))
    assert result.shape == (30, 20) and compressors[0].residual.shape == (30, 20)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float16])
def test_factors_keep_the_type(core, dtype):
    core.size = 2
    tensor = torch.tensor([8, -7, 5], dtype=dtype)
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    found = hvd.allreduce(tensor, op=Sum, compression=Compression.int8, **factors)
    assert found.dtype == dtype
    halves = [4, -3, 2] if not dtype.is_floating_point else [4, -3.5, 2.5]
    assert found.tolist() == [6 * half for half in halves]


@pytest.mark.parametrize("ratio", [0, -1, 1.5, float("nan")])
def test_a_share_must_be_one(ratio):
    with pytest.raises(ValueError, match="ratio"):
        Compression.topk.configure(ratio=ratio)


@pytest.mark.parametrize("rank", [0, -1, 2.5])
def test_a_rank_must_be_one(rank):
    with pytest.raises(ValueError, match="rank"):
        Compression.powersgd.configure(rank=rank)


def test_configuring_leaves_the_defaults():
    assert Compression.topk.configure(ratio=0.5).ratio == 0.5 and Compression.topk.ratio == 0.01
    assert Compression.powersgd.configure(rank=7).rank == 7 and Compression.powersgd.rank == 4


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_what_is_not_wider_travels_as_it_is(core, compression, dtype):
    """A bfloat16 of 1e30 is infinite as a float16."""
    tensor = torch.tensor([1e30, 3.0, -0.5, float("nan")]).to(dtype)
    sent, context = compression.compress(tensor)
    assert sent is tensor
    assert compression.decompress(sent, context) is tensor
    assert hvd.allreduce(tensor, compression=compression).dtype == dtype


class SixteenthsOfBytes:
    """As programs for older versions have them: a plain compressor that sends integers."""

    @staticmethod
    def compress(tensor):
        return (tensor * 16).round().to(torch.int8), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx) / 16


def test_integers_are_decompressed_before_they_are_averaged(two):
    two.peers = lambda request, own: [
        own,
        [torch.full_like(t, 7.75) if t.is_floating_point() else t for t in own],
    ]
    tensor = torch.tensor([7.9, 0.0, -3.0])
    expected = (torch.tensor([7.875, 0.0, -3.0]) + 7.75) / 2
    options = {"compression": SixteenthsOfBytes, "op": hvd.Average}
    assert torch.equal(hvd.allreduce(tensor, **options), expected)
    assert torch.equal(hvd.grouped_allreduce([tensor], **options)[0], expected)
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), **options)
    parameter.grad = tensor.clone()
    optimizer.step()
    assert torch.equal(parameter.grad, expected)


def test_what_waited_is_not_lost_beyond_the_range():
    """A residual may have grown beyond what the gradient's type holds."""
    compressor = Compression.topk.configure(ratio=0.25)()
    compressor.residual = torch.tensor([60000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    gradient = torch.tensor([60000.0] + [1.0] * 8, dtype=torch.float16)
    (result,), _ = reduce_together([compressor], [gradient])
    assert result[0] == torch.finfo(torch.float16).max
    assert compressor.residual[0] == 120000.0 - 65504.0


class Idle(StatefulCompressor):
    """Starts no operation."""

    def reduce(self, gradient, name, exchange):
        return gradient
        yield


def test_a_compressor_that_starts_no_operation_is_named(two):
    net = model()
    optimizer = wrapped(net, compression=Idle)
    backward(net)
    with pytest.raises(TypeError, match="could not be submitted: Idle has started no operation"):
        optimizer.step()
