"""What stateful compressors are given: the exchange, rounds of many gradients, errors, names."""

from pathlib import Path

import pytest
import torch
from compression_ranks import Lockstep, reduce_together

from horovod.common.collective.compression import (
    NoneCompressor,
    StatefulCompressor,
    is_stateful,
    resolve_compression,
    resolve_plain_compression,
)
from horovod.common.collective.exchange import Exchange, part, reduce_once, results_of, steps_of
from horovod.common.reduce_ops import Adasum, Average, Max, Sum
from horovod.torch.compression import Compression


class TwoRounds(StatefulCompressor):
    """Reduces twice, and remembers whether it came to the end."""

    def __init__(self):
        self.done = False

    def reduce(self, gradient, name, exchange):
        first = yield exchange.allreduce_async(gradient, part(name, "first"))
        second = yield exchange.allreduce_async(first, part(name, "second"), Sum)
        self.done = True
        return second


def pending_on(lockstep, rank, names, compressors=None):
    exchange = Exchange(lockstep.of_rank(rank), Average, lockstep)
    compressors = compressors or [TwoRounds() for _ in names]
    return [
        steps_of(compressor, torch.tensor([1.0 + rank]), name, exchange)
        for compressor, name in zip(compressors, names, strict=True)
    ]


def test_rounds_of_many_gradients_travel_together():
    lockstep = Lockstep(1)
    results_of(pending_on(lockstep, 0, ["a", "b"]))
    order = [(what, name) for what, _, name in lockstep.log]
    assert order[:2] == [("start", "a.first"), ("start", "b.first")]
    assert order.index(("start", "b.second")) < order.index(("wait", "a.second"))


def test_two_rounds_on_two_ranks():
    lockstep = Lockstep(2)
    pending = pending_on(lockstep, 0, ["a"]) + pending_on(lockstep, 1, ["a"])
    assert [result.tolist() for result in results_of(pending)] == [[3.0], [3.0]]


@pytest.mark.parametrize("failing", ["a.first", "a.second"])
def test_an_error_is_raised_when_all_others_are_reduced(failing):
    lockstep = Lockstep(1)
    lockstep.fail = failing
    compressors = [TwoRounds(), TwoRounds()]
    with pytest.raises(RuntimeError, match=failing):
        results_of(pending_on(lockstep, 0, ["a", "b"], compressors))
    assert [compressor.done for compressor in compressors] == [False, True]


def test_an_error_at_the_start_waits_for_the_others():
    class Broken(StatefulCompressor):
        def reduce(self, gradient, name, exchange):
            raise KeyError("broken")
            yield

    other = TwoRounds()
    with pytest.raises(KeyError, match="broken"):
        results_of(pending_on(Lockstep(1), 0, ["a", "b"], [Broken(), other]))
    assert other.done


def test_a_compressor_may_start_no_operation():
    class Skips(StatefulCompressor):
        def reduce(self, gradient, name, exchange):
            return gradient
            yield

    assert results_of(pending_on(Lockstep(1), 0, ["a", "b"], [Skips(), TwoRounds()])) == [1.0, 1.0]


@pytest.mark.parametrize("op", [Max, Adasum, 17])
def test_only_sums_and_averages(op):
    with pytest.raises(ValueError, match="Average or Sum"):
        Exchange(None, op)


def test_the_result_of_a_sum():
    lockstep = Lockstep(4)
    assert Exchange(None, Average, lockstep).of_sum(8.0) == 2.0
    assert Exchange(None, Sum, lockstep).of_sum(8.0) == 8.0


def test_parts_of_names():
    assert part("layer.weight", "left") == "layer.weight.left"
    assert part(None, "left") is None


def test_one_reduction_with_factors():
    lockstep = Lockstep(1)
    exchange = Exchange(lockstep.of_rank(0), Sum, lockstep)
    tensors = [torch.full((3000,), 2.0), torch.tensor([1.0, 3.0])]
    results = reduce_once(Compression.topk.configure(ratio=0.25), tensors, ["a", "b"], exchange, 0.5, 4.0)
    assert results[0].sum() == 750 * 4.0
    assert results[1].tolist() == [0.0, 6.0] or results[1].tolist() == [2.0, 6.0]


def test_both_kinds_of_classes_are_accepted():
    for compression in (Compression.int8, Compression.topk.configure(ratio=0.5), TwoRounds):
        assert resolve_compression(compression) is compression and is_stateful(compression)
    for compression in (Compression.none, Compression.fp16, Compression.bf16):
        assert resolve_compression(compression) is compression and not is_stateful(compression)
    assert resolve_compression(None) is NoneCompressor


@pytest.mark.parametrize("wrong", [Compression.int8(), {"topk": 0.1}, "int8", int, StatefulCompressor()])
def test_anything_else_is_refused(wrong):
    assert not is_stateful(wrong)
    with pytest.raises(TypeError, match=r"hvd\.Compression\.fp16.*configure"):
        resolve_compression(wrong)


def test_other_operations_take_plain_compressors_only():
    assert resolve_plain_compression(None, "reducescatter") is NoneCompressor
    with pytest.raises(ValueError, match="Int8Compressor cannot compress reducescatter"):
        resolve_plain_compression(Compression.int8, "reducescatter")


def test_the_example_of_the_documentation():
    text = (Path(__file__).resolve().parents[3] / "docs" / "compression.md").read_text(encoding="utf-8")
    (example,) = [part.split("```")[0] for part in text.split("```python\n") if "class RowMeans" in part]
    names = {}
    exec(example.split("\noptimizer = ")[0], names)  # names the class RowMeans
    compressors = [names["RowMeans"]() for _ in range(2)]
    gradients = [torch.arange(12.0).view(3, 4), torch.ones(3, 4)]
    whole, sent = reduce_together(compressors, gradients)
    assert torch.equal(whole[1], (gradients[0] + gradients[1]) / 2) and sent == 48
    means, sent = reduce_together(compressors, gradients)
    assert torch.equal(means[1], whole[1].mean(1, keepdim=True).expand(3, 4)) and sent == 12
