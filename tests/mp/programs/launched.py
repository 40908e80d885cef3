"""What a rank knows and computes, whoever has started it. With the argument "torch" it computes with tensors
of torch, too, and torch.distributed in the same job agrees.
"""

import os
import sys

import plain_horovod as hvd


def agree_with_torch() -> None:
    """In what they know and compute."""
    import torch
    import torch.distributed as dist

    import horovod.torch

    dist.init_process_group("gloo")
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    ranks = torch.tensor([float(hvd.rank())])
    own = horovod.torch.allreduce(ranks, op=hvd.Sum)
    dist.all_reduce(ranks)
    assert ranks.item() == own.item() == sum(range(hvd.size()))
    dist.destroy_process_group()


hvd.init()
total = hvd.allreduce_(bytearray(number + hvd.rank() for number in range(4)), op=hvd.Sum)
hvd.shutdown()
hvd.init()
assert list(hvd.allreduce_(bytearray([1]), op=hvd.Sum)) == [hvd.size()]
if sys.argv[1:] == ["torch"]:
    agree_with_torch()
known = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
assert list(map(int, known.values())) == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
places = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
os.write(1, f"places {places} total {list(total)}\n".encode())
