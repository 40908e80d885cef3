"""A rendezvous of the ranks that belongs to none of the libraries under test.

One 64-byte line per rank in a shared file: how many times it arrived, and one number. A rank that waits
spins, then yields, so that all leave within about a microsecond where each has a core.
"""

import mmap
import os
import struct
import time
from pathlib import Path

LINE = 64
SPINS = 2000
PATIENCE_S = 120.0


class Board:
    """Barrier, maximum and rank 0's decision; all ranks must call the same method in the same order."""

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self._rank, self._size, self._turn = rank, size, 0
        with open(path, "r+b") as file:
            self._lines = mmap.mmap(file.fileno(), size * LINE)

    @staticmethod
    def create(path: Path, size: int) -> None:
        """Makes the file; one rank does so before any other opens it."""
        path.write_bytes(bytes(size * LINE))

    def barrier(self) -> None:
        self._turn += 1
        struct.pack_into("q", self._lines, self._rank * LINE, self._turn)
        for rank in range(self._size):
            self._wait_for(rank)

    def max(self, value: float) -> float:
        """The largest of all ranks' values."""
        return max(self._exchange(value))

    def decide(self, value: float) -> float:
        """Rank 0's value: for whatever must be the same everywhere, such as a number of calls."""
        return self._exchange(value)[0]

    def _exchange(self, value: float) -> list[float]:
        struct.pack_into("d", self._lines, self._rank * LINE + 8, value)
        self.barrier()
        values = [struct.unpack_from("d", self._lines, rank * LINE + 8)[0] for rank in range(self._size)]
        self.barrier()  # Nobody writes the next value before everybody has read this one.
        return values

    def _wait_for(self, rank: int) -> None:
        spins, deadline = 0, time.monotonic() + PATIENCE_S
        while struct.unpack_from("q", self._lines, rank * LINE)[0] < self._turn:
            spins += 1
            if spins > SPINS:
                os.sched_yield()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"rank {rank} did not arrive within {PATIENCE_S:.0f} s")
