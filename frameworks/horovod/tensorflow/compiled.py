"""Operations in functions that XLA compiles: calls of the handler in ``horovod.xla``, in StableHLO."""

from __future__ import annotations

import ctypes
import functools
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from horovod.common.collective.gradients import NONLINEAR
from horovod.common.collective.operations import ALLGATHER, ALLREDUCE, BROADCAST
from horovod.common.process_sets import registered
from horovod.xla import library
from horovod.xla.library import TARGET

_KINDS = {
    "horovod_allreduce": ALLREDUCE,
    "horovod_grouped_allreduce": ALLREDUCE,
    "horovod_broadcast": BROADCAST,
    "horovod_allgather": ALLGATHER,
    "horovod_grouped_allgather": ALLGATHER,
}
_TYPES = {
    tf.bool: "i1",
    tf.bfloat16: "bf16",
    **{dtype: f"f{dtype.size * 8}" for dtype in (tf.float16, tf.float32, tf.float64)},
    **{dtype: f"i{dtype.size * 8}" for dtype in (tf.int8, tf.int16, tf.int32, tf.int64)},
    **{dtype: f"ui{dtype.size * 8}" for dtype in (tf.uint8, tf.uint16, tf.uint32, tf.uint64)},
}
_GET_API = "_ZN3xla3ffi12GetXlaFfiApiEv"  # xla::ffi::GetXlaFfiApi(), which every XLA exports that has one
_VERSION = 9  # of what XlaCallModule is given

# By graph: what the latest call has returned first, and the next one takes. A rank may wait within a call for
# the others, so all must make theirs in one order, the program's.
_latest: WeakKeyDictionary[Any, tf.Tensor] = WeakKeyDictionary()


def run(op: str, inputs: Sequence[Any], name: str, attributes: Mapping[str, Any]) -> Any:
    """An operation as a part of the program that XLA compiles.

    Args:
        op: as the library of TensorFlow's operations calls it.
        inputs: what it takes: a tensor, or a list of them.
        name: by which the ranks match it.
        attributes: of the operation.

    Returns:
        What the operation of the library returns.

    Raises:
        ValueError: it is none of those that XLA can call, or its shapes are not known.
    """
    if op not in _KINDS:
        raise ValueError(
            f"{op} {name!r} cannot be part of a function that XLA compiles; allreduce, allgather and "
            "broadcast can. Leave jit_compile=True away from the tf.function that calls it."
        )
    _register()
    grouped = isinstance(inputs[0], (list, tuple))
    tensors = [tf.convert_to_tensor(tensor) for tensor in (inputs[0] if grouped else inputs[:1])]
    results = _differentiable(op, name, attributes)(*tensors)
    return list(results) if grouped else results[0]


def _differentiable(op: str, name: str, attributes: Mapping[str, Any]) -> Any:
    """The call with its gradient, which is reduced as the tensors were."""

    @tf.custom_gradient
    def call(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        def gradient(*gradients: tf.Tensor) -> list[tf.Tensor]:
            if _KINDS[op] != ALLREDUCE or attributes["reduce_op"] in NONLINEAR:
                raise NotImplementedError(
                    f"{op} {name!r} has no gradient in a function that XLA compiles; sums and averages have."
                )
            return _call(op, gradients, f"{name}.gradient", attributes)

        return _call(op, tensors, name, attributes), gradient

    return call


def _call(op: str, tensors: Sequence[tf.Tensor], name: str, attributes: Mapping[str, Any]) -> list[tf.Tensor]:
    for tensor in tensors:
        known = tensor.shape.is_fully_defined() and (_KINDS[op] != ALLGATHER or tensor.shape.rank > 0)
        if not known or tensor.dtype not in _TYPES:
            raise ValueError(
                f"{op} {name!r} cannot be part of a function that XLA compiles: its tensor is of type "
                f"{tensor.dtype.name} and shape {tensor.shape}, which must be known when it is traced."
            )
    graph = tf.compat.v1.get_default_graph()
    given = [_latest.get(graph, tf.zeros((), tf.int32)), *tensors]
    shapes = [tensor.shape for tensor in given]
    if _KINDS[op] == ALLGATHER:  # all ranks bring as many rows, or it is an error when it runs
        ranks = registered(attributes["process_set_id"]).size() or 1
        shapes[1:] = [tf.TensorShape([shape[0] * ranks, *shape[1:]]) for shape in shapes[1:]]
    _latest[graph], *results = gen_xla_ops.xla_call_module(
        given,
        version=_VERSION,
        module=_program(op, given, shapes, name, attributes).encode(),
        Sout=shapes,
        Tout=[tensor.dtype for tensor in given],
        platforms=["CPU"],
        has_token_input_output=False,
    )
    return results


def _program(
    op: str, tensors: Sequence[tf.Tensor], shapes: Sequence[Any], name: str, attributes: Mapping[str, Any]
) -> str:
    """``shapes``: of the results."""
    types = [_type(tensor.shape, tensor.dtype) for tensor in tensors]
    made = ", ".join(_type(shape, tensor.dtype) for shape, tensor in zip(shapes, tensors, strict=True))
    arguments = ", ".join(f"%a{at}: {kind}" for at, kind in enumerate(types))
    values = ", ".join(f"%a{at}" for at in range(len(types)))
    results = ", ".join(f"%r#{at}" for at in range(len(types)))
    listed = ", ".join(types)
    config = {
        "kind": f"{_KINDS[op]} : i64",
        "reduce_op": f"{attributes.get('reduce_op', 0)} : i64",
        "prescale": f"{_exact(attributes, 'prescale')} : f64",
        "postscale": f"{_exact(attributes, 'postscale')} : f64",
        "root": f"{attributes.get('root_rank', 0)} : i64",
        "process_set": f"{attributes['process_set_id']} : i64",
        "name": json.dumps(name),
        "ordered": "1 : i64",
    }
    told = ", ".join(f"{key} = {value}" for key, value in config.items())
    return f"""module @horovod {{
  func.func public @main({arguments}) -> ({made}) {{
    %r:{len(types)} = stablehlo.custom_call @{TARGET}({values})
      {{api_version = 4 : i32, backend_config = {{{told}}}, has_side_effect = true}}
      : ({listed}) -> ({made})
    return {results} : {made}
  }}
}}"""


def _type(shape: Any, dtype: tf.DType) -> str:
    return f"tensor<{'x'.join([*map(str, shape), _TYPES[dtype]])}>"


def _exact(attributes: Mapping[str, Any], which: str) -> str:
    """A factor as the bits of a float of 64 bits."""
    factor, bits = attributes.get(f"{which}_factor", 1.0), attributes.get(f"{which}_bits", 0)
    whole = bits or struct.unpack("q", struct.pack("d", factor))[0]
    return f"0x{whole & (2**64 - 1):016X}"


@functools.cache
def _register() -> None:
    """Makes the handler known to TensorFlow's XLA, once."""
    try:
        get_api = ctypes.CDLL(str(Path(tf.__file__).with_name("libtensorflow_cc.so.2")))[_GET_API]
    except (OSError, AttributeError):
        raise ValueError(
            f"TensorFlow {tf.__version__} does not let libraries be part of what XLA compiles; leave "
            "jit_compile=True away from functions that call hvd."
        ) from None
    if not library.register(get_api):
        raise ValueError(f"XLA of TensorFlow {tf.__version__} refuses the operations of horovod.")
