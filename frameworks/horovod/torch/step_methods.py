"""Methods of an optimizer's class that use gradients, besides ``step``: where gradients are reduced while the
backward pass runs, they wait for them.

Sharpness-aware minimization (SAM), for example, has ``first_step`` and ``second_step``, which read gradients.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from horovod.torch.compiling import outside_of_graphs


def waiting_methods(base: type[torch.optim.Optimizer]) -> dict[str, Callable[..., Any]]:
    """The public methods, by name, that ``base`` has and ``torch.optim.Optimizer`` has not, each of which
    first has the optimizer wait for gradients that are being reduced.
    """
    return {
        name: _waiting(method)
        for name, method in inspect.getmembers(base, inspect.isfunction)
        if not name.startswith("_")
        and not hasattr(torch.optim.Optimizer, name)
        and not _is_static(base, name)
    }


def _is_static(cls: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name), staticmethod)


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        self._wait_for_gradients()
        return method(self, *arguments, **options)

    return outside_of_graphs(call)


def makes_state_only(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step would do nothing but make the optimizer's state, as ``torch.distributed.checkpoint`` has
    it done before it reads or loads a state: all gradients are zeros, all learning rates 0, and there is no
    state yet.
    """
    if optimizer.state:
        return False
    groups = optimizer.param_groups
    gradients = [p.grad for group in groups for p in group["params"] if p.requires_grad]
    return (
        all(float(group.get("lr", 1.0)) == 0.0 for group in groups)
        and all(gradient is not None for gradient in gradients)
        and not any(bool(gradient.any()) for gradient in gradients if gradient is not None)
    )


def without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's ``step`` without what torch puts around it, which runs the hooks registered on steps."""
    return step.__wrapped__ if getattr(step, "hooked", False) else step  # type: ignore[attr-defined]
