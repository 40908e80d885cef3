"""Ranks of the tests that are in a process group of the backend "hvd"."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from load import within

import horovod.torch as hvd
import horovod.torch.distributed

SECONDS = 30.0
ORDER, STORE = "TEST_GROUP_ORDER", "TEST_GROUP_STORE"
assert horovod.torch.distributed.NAME == "hvd"


@contextlib.contextmanager
def process_group(store: str = "", seconds: float = SECONDS) -> Iterator[tuple[int, int]]:
    """The default group, of all ranks of the test; gives rank and size. ``store``: the file by which they
    meet, without anything that a launcher tells; empty: they are ranks of horovodrun. In an environment of
    ``in_another_order`` the ranks of the group are other ones than those of the job.
    """
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    if store:
        for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
            del os.environ[name]
        dist.init_process_group(
            "hvd",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=seconds),
        )
    elif ORDER in os.environ:
        hvd.init()
        rank = int(os.environ[ORDER].split(",")[rank])
        dist.init_process_group(
            "hvd", store=dist.FileStore(os.environ[STORE], size), rank=rank, world_size=size
        )
    else:
        dist.init_process_group(
            "hvd", store=dist.HashStore(), rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
        )
    try:
        yield rank, size
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def in_another_order(order: list[int], folder: Path) -> dict[str, str]:
    """The environment in which rank r of the job is rank order[r] of the default group."""
    return {ORDER: ",".join(map(str, order)), STORE: str(folder / "order")}


def random_arrays(seed: int, size: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[np.ndarray]:
    """What the ranks bring, the same on all of them: whole numbers, so that sums are exact in every order."""
    generator = np.random.default_rng(seed)
    low, high = (0, 2) if dtype == torch.bool else (1, 3 if dtype.itemsize == 1 else 4)
    made = [generator.integers(low, high, shape) for _ in range(size)]
    if dtype.is_complex:
        made = [array + 1j * generator.integers(low, high, shape) for array in made]
    return made


def as_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """With memory of its own."""
    return torch.from_numpy(np.array(array)).to(dtype)


def check(found: torch.Tensor, expected: np.ndarray, doing: object) -> None:
    """Equal in every element."""
    plain = found.to(torch.complex128 if found.is_complex() else torch.float64).numpy()
    assert plain.shape == np.shape(expected), (doing, plain.shape, np.shape(expected))
    np.testing.assert_array_equal(plain, np.asarray(expected).astype(plain.dtype), str(doing))


@contextlib.contextmanager
def interrupted_after(seconds: float, soon: float = 0.5) -> Iterator[None]:
    """Expects that the block ends with KeyboardInterrupt, ``soon`` after the signal at most."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        assert time.monotonic() - sent[0] < within(soon)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
