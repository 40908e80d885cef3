"""What the operations of the fake core come to, by torch's arithmetic, and the numbers of kinds, types and
reductions.
"""

import ctypes
import functools

import torch

NAMES = [
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
    "bfloat16",
]
NAMES += ["uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]
KINDS = ["ALLREDUCE", "ALLGATHER", "BROADCAST", "BARRIER", "ALLTOALL", "REDUCESCATTER", "JOIN"]
KINDS += ["SEND", "RECV"]  # nobody negotiates them
ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, ALLTOALL, REDUCESCATTER, JOIN, SEND, RECV = range(9)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)


def view(address, dtype, shape):
    """The memory at ``address`` as a tensor."""
    torch_dtype = getattr(torch, NAMES[dtype])
    count = 1
    for dim in shape:
        count *= dim
    if count == 0:
        return torch.empty(tuple(shape), dtype=torch_dtype)
    data = (ctypes.c_char * (count * torch_dtype.itemsize)).from_address(address)
    return torch.frombuffer(data, dtype=torch_dtype).reshape(tuple(shape))


def reduced(inputs, op, prescale, postscale):
    """The result of an allreduce, in float64 or int64."""
    wide = torch.float64 if inputs[0].is_floating_point() else torch.int64
    stack = torch.stack([tensor.to(wide) * prescale for tensor in inputs])
    if op in (AVERAGE, SUM):
        total = stack.sum(0)
        if op == AVERAGE:
            total = total / len(inputs) if wide.is_floating_point else (total / len(inputs)).trunc()
    elif op == ADASUM:
        total = functools.reduce(adasum, stack)
    else:
        total = {MIN: torch.amin, MAX: torch.amax, PRODUCT: torch.prod}[op](stack, 0)
    return total * postscale


def adasum(a, b):
    """Two tensors combined by Adasum; the fake combines more of them one after the other."""
    dot, squared_a, squared_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    share_a = 1 - (dot / (2 * squared_a) if squared_a else 0)
    share_b = 1 - (dot / (2 * squared_b) if squared_b else 0)
    return share_a * a + share_b * b


def same(a, b):
    """Whether type and elements are equal, also of types that torch cannot compare."""
    return a.dtype == b.dtype and torch.equal(a.to(torch.float64), b.to(torch.float64))


def rows_of(position, size, rows):
    """The first row and the number of rows of one member's part of ``rows``."""
    short, longer = divmod(rows, size)
    return position * short + min(position, longer), short + (position < longer)


def outcome(request, position, inputs, splits, root):
    """What the member at ``position`` gets: one tensor for each of its tensors; for an alltoall also the
    received splits. ``inputs``: for each member the list of its tensors; ``splits``: of each member.
    """
    if request.kind == ALLTOALL:
        parts = [
            tensors[0].split([*rows, len(tensors[0]) - sum(rows)])
            for tensors, rows in zip(inputs, splits, strict=True)
        ]
        received = [part[position] for part in parts]
        return [torch.cat(received), torch.tensor([len(part) for part in received])]
    results = []
    for index, own in enumerate(inputs[position]):
        tensors = [tensors_of_member[index] for tensors_of_member in inputs]
        if request.kind == BROADCAST:
            result = tensors[root]
        elif request.kind == ALLGATHER:
            result = torch.cat(tensors)
        else:
            result = reduced(tensors, request.op, request.prescale, request.postscale).to(own.dtype)
            if request.kind == REDUCESCATTER:
                result = result.narrow(0, *rows_of(position, len(inputs), own.shape[0])).clone()
        results.append(result)
    return results
