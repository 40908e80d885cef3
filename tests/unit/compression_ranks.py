"""Several ranks in one process, in lockstep: the operations that stateful compressors use."""

import torch

from horovod.common.collective.exchange import Exchange, results_of, steps_of
from horovod.common.reduce_ops import Average


class Lockstep:
    """The operations of ``size`` ranks. A handle's operation needs the contributions of all of them."""

    def __init__(self, size):
        self.count = size
        self.started = {}  # (name, kind) -> tensors by rank
        self.log = []  # ("start" or "wait", rank, name)
        self.fail = None  # the name of an operation that fails

    def of_rank(self, rank):
        return _RankOps(self, rank)

    def size(self):
        return self.count


class _RankOps:
    def __init__(self, lockstep, rank):
        self.lockstep, self.rank = lockstep, rank
        self.results = {}
        self.bytes = 0

    def allreduce_async(self, tensor, average, name, op, process_set):
        return self._start("allreduce", tensor, name, op)

    def gather_to_reduce_async(self, tensors, name, op, process_set):
        (tensor,) = tensors
        return self._start("allgather", tensor, name, op)

    def _start(self, kind, tensor, name, op):
        slots = self.lockstep.started.setdefault((kind, name, op), [None] * self.lockstep.count)
        assert slots[self.rank] is None, f"{name} is in flight already"
        slots[self.rank] = tensor.clone()
        self.bytes += tensor.numel() * tensor.element_size()
        self.lockstep.log.append(("start", self.rank, name))
        handle = len(self.results)
        self.results[handle] = (kind, name, op)
        return handle

    def synchronize(self, handle):
        key = kind, name, op = self.results[handle]
        self.lockstep.log.append(("wait", self.rank, name))
        tensors = self.lockstep.started[key]
        assert all(tensor is not None for tensor in tensors), f"{name} was waited for too early"
        if name == self.lockstep.fail:
            raise RuntimeError(f"{name} failed")
        if kind == "allgather":
            return torch.cat(tensors)
        total = torch.stack(tensors).sum(0, dtype=tensors[0].dtype)
        return total / self.lockstep.count if op == Average else total


def reduce_together(compressors, gradients, op=Average, name="g"):
    """One reduction of a gradient per rank; returns the results and the bytes that each rank has sent."""
    lockstep = Lockstep(len(gradients))
    operations = [lockstep.of_rank(rank) for rank in range(lockstep.count)]
    reductions = [
        steps_of(compressor, gradient, name, Exchange(ops, op, lockstep))
        for compressor, gradient, ops in zip(compressors, gradients, operations, strict=True)
    ]
    return results_of(reductions), operations[0].bytes
