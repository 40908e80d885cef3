"""Operations as part of MXNet's automatic differentiation.

``mxnet.autograd.Function`` is not used: it writes no gradient where the array asks for gradients to be added
up, nor for the arrays that follow one without a gradient.
"""

from __future__ import annotations

import ctypes
import itertools
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from horovod.mxnet import engine
from horovod.mxnet.native import library, mx

# Operations on arrays, under a name: those of a backward pass are known by the forward's name.
Backward = Callable[[list[Any], str], Sequence[Any]]

_NULL, _ADD = 0, 3  # OpReqType of MXNet: what becomes of a gradient; otherwise it is overwritten

_BackwardEntry = mx.autograd.Function._bwd_functype
_DeleteEntry = mx.autograd.Function._del_functype
_Untyped = ctypes.CFUNCTYPE(ctypes.c_int)

_recorded: dict[int, Any] = {}  # what MXNet calls, until it lets go
_numbers = itertools.count()


def differentiable(
    forward: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any], name: str, backward: Backward
) -> list[Any]:
    """The outputs of ``forward(inputs)``. While MXNet records, ``backward`` makes the gradients of the inputs
    from those of the outputs, in a thread of MXNet; it is given a name for its own operations.
    """
    if not mx.autograd.is_recording() or not inputs:
        return list(forward(inputs))
    with mx.autograd.pause():
        outputs = list(forward(inputs))
    passes = itertools.count(1)

    def backward_again(gradients: list[Any]) -> Sequence[Any]:
        return backward(gradients, f"{name}.gradient{next(passes)}")

    _record(inputs, outputs, backward_again)
    return outputs


def _array(handle: int, writable: bool) -> Any:
    return mx.nd.NDArray(ctypes.cast(handle, mx.base.NDArrayHandle), writable=writable)


def _record(
    inputs: Sequence[Any], outputs: Sequence[Any], backward: Callable[[list[Any]], Sequence[Any]]
) -> None:
    def run(num_given: int, num_wanted: int, handles: Any, requests: Any, is_train: int, state: Any) -> bool:
        given = [_array(handle, False) for handle in handles[:num_given]]
        wanted = [_array(handle, True) for handle in handles[num_given : num_given + num_wanted]]
        try:
            with mx.util.np_shape(True):  # this thread has not heard of mx.npx.set_np()
                _assign(wanted, backward(given), requests[:num_wanted])
        except Exception:
            traceback.print_exc()  # MXNet says no more than that it went wrong
            return False
        finally:
            # MXNet frees what was given once it can be read and what was wanted is written; also while an
            # operation reads it for the other ranks alone.
            library.horovod_mxnet_await_readers(engine.handles(given), num_given)
        return True

    key = next(_numbers)

    def forget(state: Any) -> bool:
        _recorded.pop(key, None)
        return True

    entries = (_BackwardEntry(run), _DeleteEntry(forget))
    callbacks = (_Untyped * 2)(*[ctypes.cast(entry, _Untyped) for entry in entries])
    states = (ctypes.c_void_p * 2)()
    described = mx.base.MXCallbackList(
        2,
        ctypes.cast(callbacks, ctypes.POINTER(_Untyped)),
        ctypes.cast(states, ctypes.POINTER(ctypes.c_void_p)),
    )
    _recorded[key] = (described, callbacks, states, entries)
    mx.base.check_call(
        mx.base._LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            mx.base.c_handle_array(inputs),
            ctypes.c_int(len(outputs)),
            mx.base.c_handle_array(outputs),
            ctypes.byref(described),
        )
    )


def _assign(wanted: Sequence[Any], gradients: Sequence[Any], requests: Sequence[int]) -> None:
    for target, gradient, request in zip(wanted, gradients, requests, strict=True):
        if request == _NULL or target.size == 0:
            continue
        gradient = gradient.as_nd_ndarray()
        target[:] = target + gradient if request == _ADD else gradient
