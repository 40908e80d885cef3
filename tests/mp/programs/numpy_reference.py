"""What an allreduce must give, by numpy from the inputs of all ranks, and dtypes that numpy lacks."""

import numpy as np

OPS = {"Average": 0, "Sum": 1, "Min": 3, "Max": 4, "Product": 5}


def storage(dtype: str) -> type:
    """The numpy type that holds ``dtype``: bfloat16 lies in 16-bit words."""
    return np.uint16 if dtype == "bfloat16" else np.dtype(dtype).type


def from_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return values.astype(np.float32)
    return (values.astype(np.uint32) << 16).view(np.float32)


def random_block(seed: int, dtype: str, count: int) -> np.ndarray:
    """Random data. A large tensor repeats a block (``np.resize``) whose length divides no chunk; reductions
    work element by element, so their result repeats the result of the blocks.
    """
    return _random(seed, dtype, min(count, 1_000_003))


def _random(seed: int, dtype: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype in ("float16", "bfloat16", "float32"):
        return from_float32(rng.standard_normal(count, dtype=np.float32), dtype)
    if dtype == "float64":
        return rng.standard_normal(count)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)


def combine(inputs: list[np.ndarray], op: str, dtype: str) -> np.ndarray:
    """The reduction in rank order, in the arithmetic that the library documents."""
    if dtype == "bool":
        either = op in ("Sum", "Max")
        return np.logical_or.reduce(inputs) if either else np.logical_and.reduce(inputs)
    half = dtype in ("float16", "bfloat16")
    values = [to_float32(x, dtype) for x in inputs] if half else inputs
    step = {"Min": np.minimum, "Max": np.maximum, "Product": np.multiply}.get(op, np.add)
    result = values[0].copy()
    with np.errstate(over="ignore"):
        for value in values[1:]:
            result = step(result, value)
    if op == "Average":
        result = average(result, len(inputs))
    return from_float32(result, dtype) if half else result


def average(total: np.ndarray, ranks: int) -> np.ndarray:
    if np.issubdtype(total.dtype, np.floating):
        return total * total.dtype.type(1.0 / ranks)
    divisor = total.dtype.type(ranks)
    quotient = total // divisor  # floors; the library truncates toward zero
    inexact_negative = (total < 0) & (quotient * divisor != total)
    return quotient + inexact_negative.astype(total.dtype)


def close(got: np.ndarray, want: np.ndarray, dtype: str, ranks: int, exact: bool) -> bool:
    """Bit for bit where the library promises it, else within one rounding of the element type per hop."""
    if exact or dtype not in ("float16", "bfloat16", "float32", "float64"):
        return bool(np.array_equal(got.view(np.uint8), want.view(np.uint8)))
    digits = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}[dtype]
    wide = np.float64 if dtype == "float64" else np.float32
    a, b = (to_float32(x, dtype) if wide is np.float32 else x for x in (got, want))
    scale = np.maximum(np.abs(b), ranks)
    return bool(np.all(np.abs(a - b) <= 4 * ranks * digits * scale))
