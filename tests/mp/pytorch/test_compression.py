"""int8, top-k and PowerSGD between real processes: same results, fewer bytes, and training converges."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import horovod.torch as hvd
from horovod.common.collective.exchange import Exchange, reduce_once, results_of, steps_of
from horovod.torch.operations import ops

# The classes to test, and how many times fewer bytes they promise for 256 x 512 float32 numbers.
CASES = {
    "int8": (hvd.Compression.int8, 3.98),
    "topk": (hvd.Compression.topk, 50.0),
    "topk of a tenth": (hvd.Compression.topk.configure(ratio=0.1), 5.0),
    "powersgd": (hvd.Compression.powersgd, 256 * 512 / (4 * (256 + 512))),
    "powersgd of rank 1": (hvd.Compression.powersgd.configure(rank=1), 256 * 512 / (256 + 512)),
}


def gradient(rank, shape=(256, 512), seed=0):
    generator = torch.Generator().manual_seed(seed + rank)
    return torch.randn(shape, generator=generator)


def bytes_of(function):
    before = hvd.counters()["bytes"]
    result = function()
    return hvd.counters()["bytes"] - before, result


def ratios():
    """For each compressor the ratio of bytes, and a checksum of the result."""
    hvd.init()
    found = {}
    plain, _ = bytes_of(lambda: hvd.allreduce(gradient(hvd.rank()), name="plain"))
    for case, (compression, _) in CASES.items():
        exchange = Exchange(ops)
        sent, (result,) = bytes_of(
            lambda c=compression, e=exchange, n=case: reduce_once(c, [gradient(hvd.rank())], [n], e)
        )
        found[case] = [plain / sent, hash(result.numpy().tobytes()), _angle(result)]
    return found


def _angle(result):
    """The cosine between a result and the true average."""
    truth = sum(gradient(rank) for rank in range(hvd.size())) / hvd.size()
    return torch.cosine_similarity(result.flatten(), truth.flatten(), dim=0).item()


def over_sets():
    """Reductions over overlapping sets, against those sets' own averages."""
    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]
    hvd.init(process_sets=sets)
    errors = []
    for number, each in enumerate(sets):
        if each.included():
            exchange = Exchange(ops, hvd.Sum, each)
            (result,) = reduce_once(hvd.Compression.int8, [gradient(hvd.rank())], [f"set {number}"], exchange)
            truth = sum(gradient(rank) for rank in each.ranks)
            errors.append((result - truth).abs().max().item())
    return errors


def without_names():
    hvd.init()
    results = reduce_once(
        hvd.Compression.powersgd,
        [gradient(hvd.rank()), gradient(hvd.rank(), (7,))],
        [None, None],
        Exchange(ops),
    )
    truth = sum(gradient(rank, (7,)) for rank in range(hvd.size())) / hvd.size()
    return (results[1] - truth).abs().max().item()


class ByHand:
    """Averages the gradients of a model as an optimizer would: one compressor per parameter, all at once."""

    def __init__(self, net, compression):
        self.net, self.exchange = net, Exchange(ops)
        self.compressors = {name: compression() for name, _ in net.named_parameters()}

    def __call__(self):
        reductions = [
            steps_of(self.compressors[name], parameter.grad, name, self.exchange)
            for name, parameter in self.net.named_parameters()
        ]
        for parameter, result in zip(self.net.parameters(), results_of(reductions), strict=True):
            parameter.grad.copy_(result)


class Plain:
    def __init__(self, net, _):
        self.net = net

    def __call__(self):
        for name, parameter in self.net.named_parameters():
            hvd.allreduce_(parameter.grad, name=name)


def train(averaging, compression=None):
    """The loss on all digits after 300 steps, and a checksum of the parameters."""
    inputs, labels = digits()
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    average = averaging(net, compression)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        rows = torch.randint(len(inputs), (64,), generator=generator)[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()
        average()
        optimizer.step()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(inputs), labels).item()
    bits = hash(b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters()))
    return [loss, bits]


def digits():
    """1,797 handwritten digits of 64 pixels, and which they are."""
    found = load_digits()
    inputs = torch.tensor(found.data / 16, dtype=torch.float32)
    return inputs - inputs.mean(0), torch.tensor(found.target)


def losses():
    hvd.init()
    return {"none": train(Plain), **{case: train(ByHand, each) for case, (each, _) in CASES.items()}}


def disagreements():
    """What a rank gets for each reduction by gathers about whose op the ranks disagree; then one more."""
    hvd.init()
    op = hvd.Sum if hvd.rank() == 0 else hvd.Average
    rows = torch.eye(4).to_sparse()
    ways = {
        case: lambda c=each, n=case: hvd.allreduce(gradient(0), name=n, compression=c, op=op)
        for case, (each, _) in CASES.items()
    }
    ways["sparse"] = lambda: hvd.sparse_allreduce_async(rows, "sparse", op)()
    found = {}
    for case, way in ways.items():
        try:
            way()
            found[case] = "no error"
        except hvd.TensorMismatchError as error:
            found[case] = str(error)
    return found, hvd.allreduce(torch.ones(1), name="next", op=hvd.Sum).item()


ENV = {"PYTHONHASHSEED": "0"}  # checksums that can be compared between ranks


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.full)])
def test_bytes_fall_by_the_promised_ratio(run_ranks, np):
    ranks = run_ranks(np, ratios, env=ENV)
    for case, (_, promised) in CASES.items():
        ratio, bits, cosine = ranks[0][case]
        assert ratio == pytest.approx(promised, rel=0.01), case
        assert all(rank[case][1] == bits for rank in ranks), case
        assert cosine > (0.999 if case == "int8" else 0.05), case


def test_process_sets(run_ranks):
    first, both, second = run_ranks(3, over_sets)
    assert [len(first), len(both), len(second)] == [1, 2, 1]
    assert max(first + both + second) < 0.06  # a step of the scale is 0.04 at most


def test_without_names(run_ranks):
    assert max(run_ranks(2, without_names)) < 1e-6


def test_ranks_must_use_one_op(run_ranks):
    (first, after), *others = run_ranks(3, disagreements)
    assert after == 3.0
    assert all(other == [first, after] for other in others)
    for case, text in first.items():
        assert "rank 0 sent Sum, ranks 1, 2 sent Average" in text, (case, text)


@pytest.mark.full
def test_training_converges_with_each(run_ranks):
    """To a loss within 0.01 of that of uncompressed gradients, which is 0.08; before training it is 2.3."""
    ranks = run_ranks(2, losses, env=ENV, timeout=150)
    plain = ranks[0]["none"][0]
    assert plain < 0.1
    for case, (loss, bits) in ranks[0].items():
        assert ranks[1][case][1] == bits, case
        assert loss < plain + 0.01, (case, ranks[0])
