"""Makes the backend known to torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from horovod.torch.distributed.groups import open_communicator
from horovod.torch.distributed.process_group import ProcessGroupHorovod

NAME = "hvd"


def register() -> None:
    """Registers the backend; does nothing when it is registered."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])


def create(options: Any, backend_options: Any = None) -> ProcessGroupHorovod:
    """A process group, as ``dist.init_process_group`` and ``dist.new_group`` ask for it.

    Args:
        options: who the group is.
        backend_options: those of the program; there are none.

    Raises:
        RuntimeError: the ranks do not come together.
    """
    timeout = options.timeout.total_seconds()
    ranks = list(options.global_ranks_in_group)
    communicator = open_communicator(
        options.group_rank, options.group_size, ranks, options.store, options.group_id, timeout
    )
    return ProcessGroupHorovod(communicator, options.store)
