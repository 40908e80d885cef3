"""Short descriptions of the bytes of tensors, by which ranks compare them: at the speed of memory, and equal
wherever they are computed.

The bytes of a large tensor are folded into the sums of its columns, as a matrix of 32-bit numbers: any one
that differs makes a difference, and so do most that differ together. What is small is hashed as it is.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

COLUMNS = 1024
LARGE_BYTES = 1 << 16
WORD_BYTES = 4


def whole_rows(nbytes: int) -> int:
    """How many of a tensor's bytes are folded; 0: none, because it is small."""
    return 0 if nbytes < LARGE_BYTES else nbytes - nbytes % (COLUMNS * WORD_BYTES)


@functools.cache
def has_numpy() -> bool:
    """Whether ``fingerprint`` can take large tensors."""
    try:
        import numpy  # noqa: F401  (late: torch does without it where tensors are small, or on a GPU)
    except ImportError:
        return False
    return True


def fingerprint(content: bytes | memoryview) -> bytes:
    """Of the bytes of a tensor."""
    folded = whole_rows(len(content))
    if not folded:
        return hashlib.sha256(content).digest()
    import numpy

    words: Any = numpy.frombuffer(content[:folded], numpy.uint32).reshape(-1, COLUMNS)
    sums = numpy.add.reduce(words, axis=0, dtype=numpy.uint32)
    return of_sums(sums.tobytes(), content[folded:])


def of_sums(sums: bytes | memoryview, rest: bytes | memoryview) -> bytes:
    """The fingerprint of a large tensor, from the sums of its columns and the bytes behind the last row."""
    digest = hashlib.sha256(sums)
    digest.update(rest)
    return digest.digest()
