"""Copies of state dictionaries, in tensors that are kept from one copy to the next."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

_copy_all: Callable[..., None] | None = getattr(torch, "_foreach_copy_", None)


class Copies:
    """The newest copy of a state dictionary. One that is lent stays as it is, while the next ones are made
    beside it.
    """

    def __init__(self) -> None:
        self.newest = StateCopy()
        self._other: StateCopy | None = None
        self._is_lent = False

    def take(self, state: Any) -> None:
        """See ``StateCopy``. It is ``newest`` when it is whole."""
        if not self._is_lent:
            self.newest.take(state)
            return
        copied = self._other or StateCopy()
        copied.take(state)
        self.newest, self._other, self._is_lent = copied, self.newest, False

    def lend(self) -> None:
        """Leaves ``newest`` as it is until the next call; what was lent before is free."""
        self._is_lent = True


class StateCopy:
    """A copy of one state dictionary: of what is made of dictionaries, lists, tensors and other objects."""

    def __init__(self) -> None:
        self._kept: Any = None

    def take(self, state: Any) -> None:
        """Makes it a copy of ``state``. A tensor is copied into the memory of the one that was at its place,
        where that fits; a new one lies on the same device.
        """
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        with torch.no_grad():
            self._kept = _copied(state, self._kept, pairs)
            _copy_pairs(pairs)

    @property
    def kept(self) -> Any:
        """The copy itself, not to be changed."""
        return self._kept

    def to_load(self) -> Any:
        """The copy, for what copies the tensors itself. Other objects are new copies."""
        return _copied(self._kept, self._kept, [])

    def new_copy(self) -> Any:
        """A copy of the copy."""
        with torch.no_grad():
            return _copied(self._kept, None, [])

    def put_into(self, tensors: Sequence[torch.Tensor]) -> None:
        """Of a list of tensors: overwrites others like them."""
        with torch.no_grad():
            _copy_pairs(list(zip(tensors, self._kept, strict=True)))


def _copied(value: Any, kept: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """``value``, in the tensors of ``kept`` where they fit. The ``pairs`` of tensors are still to be copied:
    into the first, from the second.
    """
    if isinstance(value, torch.Tensor):
        if not _fits(value, kept):
            return value.detach().clone()
        pairs.append((kept, value.detach()))
        return kept
    if isinstance(value, dict):
        before = kept if isinstance(kept, dict) else {}
        copies = {key: _copied(item, before.get(key), pairs) for key, item in value.items()}
        return copies if type(value) is dict else _like(value, copies)
    if type(value) in (list, tuple):
        fits = isinstance(kept, (list, tuple)) and len(kept) == len(value)
        items = kept if fits else [None] * len(value)
        return type(value)(_copied(item, old, pairs) for item, old in zip(value, items, strict=True))
    return copy.deepcopy(value)


def _like(value: dict[Any, Any], copies: dict[Any, Any]) -> Any:
    """``copies`` as a dictionary of another type, such as that of ``Module.state_dict``, which has the
    versions of the modules as an attribute.
    """
    made = copy.copy(value)
    dict.update(made, copies)  # a Counter would add
    return made


def _fits(value: torch.Tensor, kept: Any) -> bool:
    return (
        type(kept) is torch.Tensor
        and kept.layout is value.layout is torch.strided
        and (kept.shape, kept.dtype, kept.device) == (value.shape, value.dtype, value.device)
        and kept.stride() == value.stride()
    )


def _copy_pairs(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    if _copy_all is not None and any(kept.is_cuda for kept, _ in pairs):  # a kernel for many
        _copy_all([kept for kept, _ in pairs], [value for _, value in pairs])
        return
    for kept, value in pairs:
        kept.copy_(value)
