"""The numbers by which the core knows torch's types."""

from __future__ import annotations

import torch

from horovod.common.placement import DTYPES as NUMBERS

DTYPES: dict[torch.dtype, int] = {
    dtype: number
    for name, number in NUMBERS.items()
    if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}
