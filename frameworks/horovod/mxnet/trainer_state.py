"""What a trainer of gluon knows beside the parameters, as dictionaries, lists, numbers and arrays."""

from __future__ import annotations

from typing import Any

import numpy

from horovod.mxnet.native import mx

_PLAIN = (bool, int, float, str, type(None))


class _OtherError(Exception):
    """A value is none of these."""


def snapshot(trainer: Any) -> dict[str, Any]:
    """A copy of what the optimizer keeps: for each parameter, about all, and of its schedule of the rate."""
    optimizer = trainer._optimizer
    found = {
        "states": {index: _copied(state) for index, state in trainer._updaters[0].states.items()},
        "optimizer": _attributes(optimizer),
    }
    if optimizer.lr_scheduler is not None:
        found["scheduler"] = _attributes(optimizer.lr_scheduler)
    return found


def load(trainer: Any, found: dict[str, Any]) -> None:
    """Gives the trainer what ``snapshot`` has returned, also on another rank.

    Raises:
        ValueError: the optimizer is another one.
    """
    optimizer = trainer._optimizer
    unknown = found["optimizer"].keys() - vars(optimizer).keys()
    if unknown:
        raise ValueError(
            f"the state is of another optimizer than {type(optimizer).__name__}: {', '.join(sorted(unknown))}"
        )
    for name, value in found["optimizer"].items():
        setattr(optimizer, name, _copied(value))
    # MXNet counts updates by the number of the device, which on this rank may be another one.
    counts = max(optimizer._all_index_update_counts.values(), key=lambda counted: sum(counted.values()))
    devices = [context.device_id for context in trainer._contexts]
    optimizer._all_index_update_counts = {device: dict(counts) for device in devices}
    optimizer._index_update_count = optimizer._all_index_update_counts[devices[0]]  # under two names
    if optimizer.lr_scheduler is not None and "scheduler" in found:
        vars(optimizer.lr_scheduler).update(_copied(found["scheduler"]))
    for updater in trainer._updaters:
        updater.optimizer = optimizer
        updater.states = {index: _copied(state) for index, state in found["states"].items()}
        updater.states_synced = dict.fromkeys(updater.states, False)


def _attributes(value: Any) -> dict[str, Any]:
    """Those that are data."""
    found = {}
    for name, attribute in vars(value).items():
        try:
            found[name] = _copied(attribute)
        except _OtherError:
            continue  # such as the parameters themselves
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, mx.nd.NDArray):
        with mx.util.np_shape(True):
            return value.copyto(mx.cpu())  # unpickled, it would be on the same device of another rank
    if type(value) in _PLAIN:
        return value
    if isinstance(value, numpy.generic):  # such as a learning rate that was computed
        return value.item()
    if type(value) is numpy.ndarray and not value.dtype.hasobject:
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    raise _OtherError
