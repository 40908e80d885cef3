"""What a rank knows and computes, whoever has started it; and torch.distributed in the same job agrees."""

import os

import torch
import torch.distributed as dist

import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.arange(4.0) + hvd.rank(), op=hvd.Sum)
hvd.shutdown()
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
dist.init_process_group("gloo")
assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
ranks = torch.tensor([float(hvd.rank())])
dist.all_reduce(ranks)
assert ranks.item() == sum(range(hvd.size()))
known = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
assert list(map(int, known.values())) == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
places = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
os.write(1, f"places {places} total {total.tolist()}\n".encode())
dist.destroy_process_group()
