"""torch.distributed over gloo, the peer of the benchmarks in torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from horovod.common.collective.byte_objects import objects


@contextmanager
def gloo_group(_folder: Path, rank: int, size: int) -> Iterator[None]:
    """The default process group, on this machine's own addresses, with the store that torchrun has: one in a
    file is asked every ten milliseconds, which is most of what a new group would take.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = objects.broadcast_object(own and own.port)
    store = own or dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    yield
    dist.destroy_process_group()
