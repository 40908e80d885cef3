"""A backend for torch.distributed, named "hvd"::

    import torch.distributed as dist

    import horovod.torch.distributed  # registers the backend

    dist.init_process_group("hvd")

What is written for torch.distributed (DDP, FSDP2, DTensor, functional collectives, checkpoints) then runs
over the core. ``hvd`` and torch.distributed may be used in one process: they share the engine, whichever
comes first.
"""

from horovod.torch.distributed.errors import CollectiveTimeoutError
from horovod.torch.distributed.process_group import ProcessGroupHorovod
from horovod.torch.distributed.registration import NAME, register

register()

__all__ = ["CollectiveTimeoutError", "NAME", "ProcessGroupHorovod", "register"]
