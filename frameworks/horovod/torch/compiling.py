"""Where ``torch.compile`` stops: what waits for other ranks is no part of a compiled graph.

A compiled function calls into this library between its graphs, as it calls any Python function that is marked
by ``torch.compiler.disable``. Without the marks Dynamo would trace into the library, give up in the middle of
it, with warnings, and compile again what depends on handles and counts.

The marks are Dynamo's own, put on the functions as they are: a wrapper, and loading Dynamo, would cost every
program some microseconds a call and a second at its start.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

_REASON = "horovod waits for other ranks"


def outside_of_graphs(function: _F) -> _F:
    """``function``, which compiled code calls instead of containing it, and nothing below which is compiled.

    Use what is returned: where this torch knows no such mark it is a wrapper.
    """
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None or not _leave_alone(code):
        return torch.compiler.disable(function)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_recursive = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return function


def methods_outside_of_graphs(cls: _C) -> _C:
    """A class decorator: all functions that ``cls`` itself has, properties too, are outside of graphs."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member):
            setattr(cls, name, outside_of_graphs(member))
        elif isinstance(member, property) and member.fget is not None:
            outside_of_graphs(member.fget)
    return cls


def mark_functions(namespace: dict[str, Any], package: str) -> None:
    """Makes all functions of ``package`` in a module's ``namespace`` ones that are outside of graphs."""
    for name, member in list(namespace.items()):
        if inspect.isfunction(member) and member.__module__.partition(".")[0] == package:
            namespace[name] = outside_of_graphs(member)


def _leave_alone(code: CodeType) -> bool:
    """Has Dynamo never look at calls of ``code``, and at what they call. False where it cannot be told."""
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    except (ImportError, AttributeError, TypeError):
        return False
    return True
