"""How a tensor's elements lie in memory: as torch lays out one that is made like another."""

from __future__ import annotations

import torch


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether an expanded dimension makes several elements one."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.numel() > 0 and any(stride == 0 and size > 1 for size, stride in pairs)


def lies_as(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a tensor has its elements in memory in the order of ``other``, of the same shape, as torch
    would lay out one that is made like it.
    """
    if tensor.stride() == other.stride():
        return True
    wanted = torch.empty_like(other, device="meta", memory_format=torch.preserve_format)
    triples = zip(tensor.shape, tensor.stride(), wanted.stride(), strict=True)
    return all(mine == theirs for size, mine, theirs in triples if size > 1)


def laid_out_as(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy that lies in memory as ``other``, of the same shape."""
    if lies_as(tensor, other):
        return tensor
    return torch.empty_like(other, dtype=tensor.dtype, memory_format=torch.preserve_format).copy_(tensor)
