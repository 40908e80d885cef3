"""torch.distributed over gloo, the peer of the benchmarks in torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist


@contextmanager
def gloo_group(folder: Path, rank: int, size: int) -> Iterator[None]:
    """The default process group, on this machine's own addresses."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    yield
    dist.destroy_process_group()
