"""How a rank of these programs begins."""

import os
import sys
from typing import Any

import torch

import horovod.torch as hvd
from horovod import _core


def begin(process_sets: Any = None) -> torch.device:
    """Initialises horovod and takes a GPU. Ends the program where tensors would not travel by NCCL."""
    hvd.init(process_sets=process_sets)
    gpus = torch.cuda.device_count()
    if hvd.local_size() > gpus:  # NCCL refuses two ranks on a GPU unless it takes them for two hosts
        os.environ["NCCL_HOSTID"] = f"rank{hvd.rank()}"
    device = torch.device("cuda", hvd.local_rank() % gpus)
    torch.cuda.set_device(device)
    if not _core.gpu_serves(_core.ALLREDUCE, _core.DTYPES["float32"], hvd.Sum, 1.0, 1.0):
        sys.exit("tensors on GPUs do not travel by NCCL in this job: see horovodrun --check-build --verbose")
    return device


def say(text: str) -> None:
    """Once for all ranks."""
    if hvd.rank() == 0:
        print(text, flush=True)
