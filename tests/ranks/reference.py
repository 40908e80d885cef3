"""What the collectives must compute, by numpy and in rank order, from inputs that every rank can make for
all ranks.

Arrays are those of numpy; bfloat16 and floats of 8 bits, which it lacks, are float32 of the same value.
"""

import hashlib

import numpy as np

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
OPS = {"Average": AVERAGE, "Sum": SUM, "Min": MIN, "Max": MAX, "Product": PRODUCT}
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64"]
FLOAT8 = {"float8_e4m3fn": (3, -6, 448.0, 448.0), "float8_e5m2": (2, -14, 57344.0, np.inf)}
"""Bits of the mantissa, the least exponent of a normal number, the largest number, and what is beyond."""
NARROW = ["float16", "bfloat16", *FLOAT8]
"""Computed in float32, and rounded once."""
FLOATS = ["float32", "float64", *NARROW]
DTYPES = [*INTEGERS, *FLOATS, "bool"]
DIGITS = {
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
SMALLEST = {"float16": 2.0**-24, "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16}
"""Subnormal numbers lie no closer."""


def numbers(rank, dtype, shape, seed=0):
    """Random elements of every size that the type has."""
    random = np.random.default_rng([*np.ravel(seed), rank, DTYPES.index(dtype)])
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    values = random.standard_normal(shape, np.float64 if dtype == "float64" else np.float32)
    return rounded(values, dtype)


def rounded(values, dtype):
    """Floating-point values as the type holds them, rounded to nearest even."""
    if dtype in FLOAT8:
        return _rounded_to_8_bits(values, *FLOAT8[dtype])
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def _rounded_to_8_bits(values, mantissa, lowest, largest, beyond):
    exponents = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, lowest)
    steps = np.ldexp(1.0, exponents - mantissa)
    nearest = np.rint(values / steps) * steps  # ties to even
    return np.where(np.abs(nearest) > largest, np.copysign(beyond, nearest), nearest).astype(np.float32)


def digest(arrays):
    """Equal for equal bits."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def allreduce(arrays, dtype, op, prescale=1.0, postscale=1.0, ranks=None):
    """The reduction of one array per rank, in the arithmetic that the library documents: narrow floats in
    float32 and rounded once, integers wrapping in their type, their factors in double and truncated.

    ``ranks``: what Average divides by, when more ranks than these belong to it.
    """
    if op == ADASUM:
        return rounded(adasum(arrays), dtype)
    if dtype == "bool":
        return (np.logical_or if op in (SUM, MAX) else np.logical_and).reduce(arrays)
    wide = np.float32 if dtype in NARROW else arrays[0].dtype.type
    combine = {MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}.get(op, np.add)
    divisor = ranks or len(arrays) if op == AVERAGE else 1
    result = _scaled(arrays[0].astype(wide), prescale)
    for values in arrays[1:]:
        result = combine(result, _scaled(values.astype(wide), prescale))
    if dtype in INTEGERS:
        return _scaled(_quotient(result, divisor), postscale)
    return rounded(_scaled(result, postscale / divisor), dtype)


def _scaled(values, factor):
    if factor == 1.0:
        return values
    if np.issubdtype(values.dtype, np.floating):
        return values * values.dtype.type(factor)
    info = np.iinfo(values.dtype)
    product = np.trunc(values.astype(np.float64) * factor)
    inside = np.clip(product, np.float64(info.min), np.nextafter(np.float64(info.max), 0)).astype(
        values.dtype
    )
    return np.where(product >= np.float64(info.max), values.dtype.type(info.max), inside)


def _quotient(total, divisor):
    quotient = total // total.dtype.type(divisor)  # floors; the library truncates toward zero
    inexact_negative = (total < 0) & (quotient * total.dtype.type(divisor) != total)
    return quotient + inexact_negative.astype(total.dtype)


def adasum(arrays):
    """In float64: a tree over the ranks 0 .. q-1, where q is the largest power of two that is not more than
    the number of ranks. The other ranks are first combined with the ranks 0, 1, ... .
    """
    values = [array.astype(np.float64) for array in arrays]
    power = 1 << (len(values).bit_length() - 1)
    for extra in range(power, len(values)):
        values[extra - power] = _adasum_pair(values[extra - power], values[extra])
    values = values[:power]
    while len(values) > 1:
        values = [_adasum_pair(a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _adasum_pair(a, b):
    dot, norm_a, norm_b = (np.sum(x * y) for x, y in ((a, b), (a, a), (b, b)))
    of_a = 1.0 - dot / (2 * norm_a) if norm_a else 1.0
    of_b = 1.0 - dot / (2 * norm_b) if norm_b else 1.0
    return of_a * a + of_b * b


def allgather(arrays):
    """What every rank gets."""
    return np.concatenate(arrays)


def alltoall(arrays, splits, receiver):
    """(rows, received splits) of one receiver; ``splits[s][r]`` rows go from ``s`` to ``r``."""
    starts = [sum(of_sender[:receiver]) for of_sender in splits]
    received = [of_sender[receiver] for of_sender in splits]
    parts = [a[s : s + n] for a, s, n in zip(arrays, starts, received, strict=True)]
    return np.concatenate(parts), received


def part_of(rows, ranks, rank):
    """The rows of a reducescatter that ``rank`` gets: the first ranks one more when they do not divide."""
    each, more = divmod(rows, ranks)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


def reducescatter(arrays, dtype, op, rank, prescale=1.0, postscale=1.0, ranks=None):
    """The part of one rank."""
    total = ranks or len(arrays)
    part = part_of(len(arrays[0]), total, rank)
    return allreduce([a[part] for a in arrays], dtype, op, prescale, postscale, total)


def differs(actual, expected, dtype, hops=0, bound=0.0):
    """Why the array ``actual`` is not ``expected``; empty when it is.

    Bit for bit, unless floating-point values may be rounded at every one of ``hops`` ranks, or may be off by
    ``bound``.
    """
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != expected.dtype:
        return f"type {actual.dtype}, expected {expected.dtype}"
    if dtype in DIGITS and (hops or bound):
        scale = np.maximum(np.abs(expected), hops).astype(np.float64)
        allowed = bound + 4 * hops * (DIGITS[dtype] * scale + SMALLEST.get(dtype, 0.0))
        wrong = ~(np.abs(actual.astype(np.float64) - expected) <= allowed)
    else:
        wrong = ~_same_bits(actual, expected)
    return f"{actual[wrong][:4]} != {expected[wrong][:4]}" if wrong.any() else ""


def _same_bits(actual, expected):
    if actual.dtype.kind != "f":
        return actual == expected
    bits = f"u{actual.itemsize}"
    one, other = (np.ascontiguousarray(x).view(bits).reshape(x.shape) for x in (actual, expected))
    return one == other
