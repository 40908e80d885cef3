"""What the collectives must compute, by numpy and in rank order, from inputs that every rank can make for
all ranks.
"""

import numpy as np
import torch

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
OPS = {"Average": AVERAGE, "Sum": SUM, "Min": MIN, "Max": MAX, "Product": PRODUCT}
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64"]
HALVES = ["float16", "bfloat16"]
DTYPES = [*INTEGERS, "float32", "float64", *HALVES, "bool"]


def numbers(rank, dtype, size, seed=0):
    """A numpy array; bfloat16 as float32 of the same value."""
    random = np.random.default_rng([seed, rank, DTYPES.index(dtype), size])
    if dtype == "bool":
        return random.random(size) < 0.5
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    values = random.standard_normal(size)
    if dtype == "bfloat16":
        return torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    return values.astype(dtype)


def tensor(array, dtype):
    """The array as a tensor of the named type, with memory of its own."""
    return torch.from_numpy(np.array(array)).to(getattr(torch, dtype))


def array(result):
    """A tensor as numpy shows it; bfloat16 as float32."""
    result = result.detach()
    return (result.float() if result.dtype == torch.bfloat16 else result).numpy()


def allreduce(arrays, dtype, op, prescale=1.0, postscale=1.0):
    """The reduction of one array per rank: halves in float32 and rounded once, integers wrapping in their
    type.
    """
    wide = np.float32 if dtype in HALVES else arrays[0].dtype
    if dtype == "bool":
        return (np.any if op in (SUM, MAX) else np.all)(np.stack(arrays), axis=0)
    stack = np.stack([values.astype(wide) for values in arrays])
    if prescale != 1.0:
        stack = (stack * np.asarray(prescale, wide)).astype(wide)
    combine = {AVERAGE: np.add, SUM: np.add, MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}[op]
    result = stack[0]
    for values in stack[1:]:
        result = combine(result, values)
    if op == AVERAGE:
        result = _average(result, len(arrays), dtype)
    if postscale != 1.0:
        result = (result * np.asarray(postscale, wide)).astype(wide)
    if dtype == "bfloat16":
        return torch.from_numpy(result).to(torch.bfloat16).float().numpy()
    return result.astype(arrays[0].dtype)


def _average(total, ranks, dtype):
    if dtype in INTEGERS:
        quotient = np.abs(total.astype(object)) // ranks * np.sign(total.astype(object))
        return quotient.astype(total.dtype)
    return total / np.asarray(ranks, total.dtype)


TOLERANCE = {"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}


def differs(result, expected, dtype):
    """Why ``result`` (a tensor) is not ``expected`` (an array); empty when it is. Integers must be equal."""
    actual = array(result)
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if dtype not in TOLERANCE:
        return "" if np.array_equal(actual, expected) else f"{actual.ravel()[:4]} != {expected.ravel()[:4]}"
    bound = TOLERANCE[dtype]
    close = np.isclose(actual, expected, rtol=bound, atol=bound, equal_nan=True)
    return "" if close.all() else f"{actual[~close][:4]} != {expected[~close][:4]}"
