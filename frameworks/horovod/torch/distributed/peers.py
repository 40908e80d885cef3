"""Messages between two ranks of a group."""

from __future__ import annotations

from typing import Any

import torch

from horovod.torch.distributed.communicator import Communicator


def send(communicator: Communicator, tensor: torch.Tensor, destination: int, tag: int) -> Any:
    """Sends a tensor to a rank of the group."""
    raise NotImplementedError("The backend hvd has no send yet.")


def recv(communicator: Communicator, tensor: torch.Tensor, source: int | None, tag: int) -> Any:
    """Receives a tensor from a rank of the group; None: from any."""
    raise NotImplementedError("The backend hvd has no recv yet.")
