"""SyncBatchNorm on ranks that are threads, against BatchNorm on the combined batch."""

import copy
import io
import threading
import types

import pytest
import torch
from torch import nn

import horovod.torch.sync_batch_norm as module
from horovod.torch.sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm


class ThreadRanks:
    """Plays `ops` and a process set for ``size`` threads, of which each has set ``local.rank``."""

    def __init__(self, size):
        self.count = size
        self.local = threading.local()
        self.barrier = threading.Barrier(size, timeout=20)
        self.slots = [None] * size
        self.collectives = 0

    def size(self):
        return self.count

    def allgather_async(self, tensor, name, process_set):
        return self._meet("gather", tensor, name, process_set, torch.cat)

    def allreduce_async(self, tensor, average, name, op, process_set):
        assert op == module.Sum and average is None
        return self._meet("sum", tensor, name, process_set, sum)

    def synchronize(self, handle):
        return handle

    def _meet(self, kind, tensor, name, process_set, combine):
        assert process_set is self and name is None
        self.slots[self.local.rank] = (kind, tensor.clone())
        if self.barrier.wait() == 0:
            self.collectives += 1
        kinds, tensors = zip(*self.slots, strict=True)
        assert set(kinds) == {kind}
        result = combine(list(tensors)).clone()
        self.barrier.wait()
        return result

    def run(self, function):
        """Calls ``function(rank)`` on all ranks; their results, or the errors of those that raised."""
        results = [None] * self.count

        def call(rank):
            self.local.rank = rank
            try:
                results[rank] = function(rank)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture
def ranks(monkeypatch):
    def make(size):
        made = ThreadRanks(size)
        monkeypatch.setattr(module, "ops", made)
        return made

    return make


def batches(sizes, channels, shape, dtype=torch.float64, offset=0.0):
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(sum(sizes), channels, *shape, generator=generator, dtype=torch.float64) + offset
    slope = torch.randn(whole.shape, generator=generator, dtype=torch.float64)
    return whole.to(dtype).split(sizes), slope.to(dtype).split(sizes)


def run_one(layer, values, slope):
    """Output, gradients of input, weight and bias."""
    values = values.clone().requires_grad_()
    output = layer(values)
    output.backward(slope)
    affine = [] if layer.weight is None else [layer.weight.grad, layer.bias.grad]
    return [output.detach(), values.grad, *affine]


def prepared(layer):
    """Parameters and buffers that hide no mistake."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in [*layer.parameters(), *layer.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5)
    return layer


REFERENCES = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def compare(made, sizes, shape, tolerance, dtype=torch.float64, offset=0.0, steps=2, **options):
    """Runs the layer on all ranks and BatchNorm on the combined batch, and compares all there is."""
    values, slopes = batches(sizes, 5, shape, dtype, offset)
    combined = [torch.cat(parts).double() for parts in (values, slopes)]
    reference = prepared(REFERENCES[len(shape)](5, **options, dtype=torch.float64))

    layers = [prepared(SyncBatchNorm(5, process_set=made, **options, dtype=dtype)) for _ in sizes]

    def work(rank):
        for _ in range(steps):
            layers[rank].zero_grad()
            found = run_one(layers[rank], values[rank], slopes[rank])
        return found

    for _ in range(steps):
        reference.zero_grad()
        expected = run_one(reference, *combined)
    results = made.run(work)
    for result in results:
        if isinstance(result, Exception):
            raise result
    close = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    assert {result[0].dtype for result in results} == {dtype}
    for index in (0, 1):
        torch.testing.assert_close(torch.cat([r[index] for r in results]), expected[index], **close)
    for index in range(2, len(expected)):
        torch.testing.assert_close(sum(r[index].double() for r in results), expected[index], **close)
    for layer in layers:
        for mine, theirs in zip(layer.buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, **close)
    return layers


@pytest.mark.parametrize("shape", [(), (7,), (4, 3), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("sizes", [[3, 3], [1, 6], [4, 0, 2], [2, 3, 1, 5]], ids=str)
def test_equals_batch_norm_on_the_combined_batch(ranks, sizes, shape):
    made = ranks(len(sizes))
    compare(made, sizes, shape, 1e-12)
    assert made.collectives == 2 * 2  # one forward and one backward in each step


@pytest.mark.parametrize(
    "options",
    [{"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.7, "eps": 1e-2}],
    ids=str,
)
def test_options(ranks, options):
    compare(ranks(2), [3, 4], (6,), 1e-12, steps=3, **options)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)], ids=str
)
def test_types(ranks, dtype, tolerance):
    compare(ranks(3), [8, 2, 6], (5,), tolerance, dtype)


def test_great_mean_and_small_variance(ranks):
    """E[x^2] - E[x]^2 in float32 would have no correct digit here; the input itself has three."""
    compare(ranks(2), [40, 24], (8,), 3e-3, torch.float32, offset=3000.0)


def test_fp16_does_not_overflow(ranks):
    made = ranks(2)
    values = torch.linspace(-60000, 60000, 64).reshape(2, 32, 1).half()
    outputs = made.run(lambda rank: SyncBatchNorm(1, process_set=made)(values[rank]))
    expected = nn.BatchNorm1d(1)(values.reshape(64, 1).float())
    torch.testing.assert_close(torch.cat(outputs).float(), expected, rtol=2e-3, atol=2e-3)


def test_float16_input_with_float32_parameters(ranks):
    made = ranks(2)
    values, slopes = batches([3, 4], 2, (3,), torch.float16)
    results = made.run(lambda rank: run_one(SyncBatchNorm(2, process_set=made), values[rank], slopes[rank]))
    assert [tensor.dtype for tensor in results[0]] == [torch.float16] * 2 + [torch.float32] * 2


def test_ranks_have_the_same_bits(ranks):
    layers = compare(ranks(3), [2, 5, 1], (3,), 1e-5, torch.float32)
    for layer in layers[1:]:
        for mine, first in zip(layer.buffers(), layers[0].buffers(), strict=True):
            assert torch.equal(mine, first)


def test_memory_format_is_kept(ranks):
    made = ranks(2)
    values = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    output = made.run(lambda rank: SyncBatchNorm(3, process_set=made)(values))[0]
    assert output.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("sizes", [[1, 0], [0, 0]])
def test_too_few_values_are_an_error_everywhere(ranks, sizes):
    made = ranks(2)
    layer = SyncBatchNorm(3, process_set=made)
    results = made.run(lambda rank: layer(torch.ones(sizes[rank], 3)))
    assert all("more than 1 value per channel" in str(error) for error in results)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 3)], ids=str)
def test_wrong_input_is_an_error_of_this_caller(ranks, shape):
    dtype = torch.int32 if shape == (2, 3, 3) else torch.float32
    with pytest.raises(ValueError, match="SyncBatchNorm"):
        SyncBatchNorm(3, process_set=ranks(2))(torch.ones(shape, dtype=dtype))


def test_evaluation_needs_nobody(ranks):
    layer = prepared(SyncBatchNorm(4, process_set=ranks(2))).eval()
    reference = prepared(nn.BatchNorm1d(4)).eval()
    values = torch.randn(3, 4)
    torch.testing.assert_close(layer(values), reference(values))


def test_one_rank_is_plain_batch_norm(ranks):
    layer, reference = SyncBatchNorm(4, process_set=ranks(1)), nn.BatchNorm1d(4)
    values = torch.randn(3, 4)
    assert torch.equal(layer(values), reference(values))
    assert torch.equal(layer.running_var, reference.running_var)


def test_a_second_derivative_is_refused(ranks):
    made = ranks(2)

    def work(rank):
        values = torch.randn(3, 2, requires_grad=True)
        (slope,) = torch.autograd.grad(
            SyncBatchNorm(2, process_set=made)(values).square().sum(), values, create_graph=True
        )
        slope.sum().backward()

    assert all("once_differentiable" in str(error) for error in made.run(work))


def test_frozen_input_needs_no_exchange_in_backward(ranks):
    made = ranks(2)
    made.run(lambda rank: SyncBatchNorm(2, process_set=made)(torch.randn(3, 2)).sum().backward())
    assert made.collectives == 1


def network():
    shared = nn.BatchNorm2d(3)
    inner = nn.Sequential(nn.Conv2d(3, 3, 1), shared, nn.BatchNorm1d(4, affine=False, momentum=None))
    return nn.Sequential(inner, shared, nn.InstanceNorm2d(3), nn.BatchNorm3d(2, track_running_stats=False))


def test_conversion_keeps_everything():
    net = network()
    net[0][1].weight.requires_grad_(False)
    net[3].eval()
    before, parameters = net.state_dict(), list(net.parameters())
    calls = []
    net[3].register_forward_hook(lambda *_: calls.append(1))
    process_set = types.SimpleNamespace(size=lambda: 1)
    result = SyncBatchNorm.convert_sync_batchnorm(net, process_set)
    assert result is net
    converted = [net[0][1], net[0][2], net[1], net[3]]
    assert all(type(layer) is SyncBatchNorm and layer.process_set is process_set for layer in converted)
    assert net[0][1] is net[1]
    assert isinstance(net[2], nn.InstanceNorm2d)
    assert all(mine is theirs for mine, theirs in zip(net.parameters(), parameters, strict=True))
    after = net.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not net[1].weight.requires_grad and net[1].bias.requires_grad
    assert [layer.training for layer in converted] == [True, True, True, False]
    assert net[0][2].momentum is None and net[3].running_mean is None
    net[3](torch.ones(2, 2, 1, 1, 1))
    assert calls == [1]


def test_conversion_of_a_layer_itself():
    layer = nn.BatchNorm1d(3)
    converted = convert_sync_batchnorm(layer)
    assert type(converted) is SyncBatchNorm and converted.weight is layer.weight
    assert converted.process_set is module.global_process_set
    assert type(layer) is nn.BatchNorm1d


def test_a_lazy_layer_cannot_be_converted():
    with pytest.raises(ValueError, match="lazy"):
        convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))


def test_copies_work_over_the_same_set():
    process_set = module.ProcessSet([0, 1])
    net = nn.Sequential(SyncBatchNorm(2), SyncBatchNorm(2, process_set=process_set))
    twin = copy.deepcopy(net)
    assert twin[0].process_set is module.global_process_set and twin[1].process_set is process_set
    assert twin[0].weight is not net[0].weight


def test_a_saved_module_is_loaded_into_another_job():
    file = io.BytesIO()
    torch.save(
        [SyncBatchNorm(2, momentum=0.3), SyncBatchNorm(2, process_set=module.ProcessSet([0, 1]))], file
    )
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded[0].process_set is module.global_process_set and loaded[0].momentum == 0.3
    assert loaded[1].process_set.ranks == [0, 1]
