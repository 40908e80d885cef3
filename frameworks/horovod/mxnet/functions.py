"""Parameters and objects of one rank, given to all ranks, and objects of all ranks."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Mapping
from typing import Any

from horovod.common import remarks
from horovod.common.collective import byte_objects
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set
from horovod.common.training.broadcasts import agree_on_tensors
from horovod.mxnet.engine import numbered
from horovod.mxnet.mpi_ops import broadcast_
from horovod.mxnet.native import mx
from horovod.mxnet.tensors import NDArray

broadcast_object = byte_objects.objects.broadcast_object
allgather_object = byte_objects.objects.allgather_object

_NUMBER = re.compile(r"(\d+)")


def broadcast_parameters(
    params: Mapping[Any, Any],
    root_rank: int = 0,
    prefix: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites arrays with those of one rank. Returns at once; what uses the arrays waits.

    A parameter whose initialisation is deferred is overwritten as soon as it is initialised, so the first
    forward pass must be made on all ranks.

    Args:
        params: Arrays by name or number, such as ``mod.get_params()[0]``, or the parameters of gluon,
            ``net.collect_params()``.
        root_rank: The rank whose arrays all get.
        prefix: Of the names of the operations, equal on all ranks; calls without one are counted.
        process_set: The ranks that take part.

    Raises:
        ValueError: For other ``params``; and, on every rank, for a parameter that is not initialised.
        TensorMismatchError: On every rank, before anything is sent, when the ranks have other ``params``.
    """
    if not isinstance(params, (Mapping, mx.gluon.ParameterDict)):
        raise ValueError(
            f"invalid params of type: {type(params)}; give a dict of arrays or net.collect_params()"
        )
    remarks.parameters_are_broadcast()
    # By name, in one order everywhere; one that is not initialised may be so on other ranks.
    if prefix is None:
        prefix = numbered("broadcast_parameters", check_process_set(process_set)) + "."
    named = [(f"{prefix}{key}", params[key]) for key in sorted(params.keys(), key=_in_one_order)]
    problem = next(filter(None, (_problem_with(name, value) for name, value in named)), None)
    # Shapes may be known later, on some ranks.
    agree_on_tensors(
        "hvd.broadcast_parameters", dict.fromkeys(map(repr, map(str, params)), "there"), process_set, problem
    )
    for name, value in named:
        if isinstance(value, NDArray):
            broadcast_(value, root_rank, name, process_set=process_set)
        elif value._data is not None:
            _broadcast_parameter(value, root_rank, name, process_set)
        else:
            _broadcast_once_initialised(value, root_rank, name, process_set)


def _problem_with(name: str, value: Any) -> str | None:
    """What keeps it from being sent, now or later."""
    if isinstance(value, NDArray):
        return None
    if not isinstance(value, mx.gluon.Parameter):
        return f"{name!r} is a {type(value).__name__}, not an array or a parameter of gluon"
    if value._data is None and not value._deferred_init:
        return f"Parameter {value.name!r} has not been initialized; call net.initialize() first"
    return None


@functools.lru_cache(maxsize=4096)  # a Module asks for one name at a time
def own_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of parameters as they are on all ranks. Gluon numbers the layers that a process makes, so one
    that has made others before has other numbers. Which of its kind each is tells where they are sorted
    otherwise: as texts, dense10 comes before dense9, but dense2 after dense1.
    """
    kinds: dict[str, list[int]] = {}
    for place in sorted(range(len(names)), key=lambda place: _by_number(names[place])):
        kinds.setdefault(_NUMBER.sub("#", names[place]), []).append(place)
    return tuple(
        name
        for _, name in sorted(
            (place, kind if len(places) == 1 else f"{kind} ({count} of {len(places)})")
            for kind, places in kinds.items()
            for count, place in enumerate(places, 1)
        )
    )


def _by_number(name: str) -> list[str | int]:
    return [int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name))]


def _in_one_order(key: Any) -> tuple[str, str]:
    return str(key), type(key).__name__  # 1 and "1" are different keys


def _broadcast_parameter(parameter: Any, root_rank: int, name: str, process_set: ProcessSet) -> None:
    first, *others = parameter.list_data()
    broadcast_(first, root_rank, name, process_set=process_set)
    with mx.autograd.pause():
        for other in others:
            first.copyto(other)


def _broadcast_once_initialised(parameter: Any, root_rank: int, name: str, process_set: ProcessSet) -> None:
    initialise = parameter._init_impl

    def initialise_and_broadcast(self: Any, *arguments: Any) -> None:
        self.__dict__.pop("_init_impl", None)  # once
        initialise(*arguments)
        _broadcast_parameter(self, root_rank, name, process_set)

    parameter._init_impl = types.MethodType(initialise_and_broadcast, parameter)
