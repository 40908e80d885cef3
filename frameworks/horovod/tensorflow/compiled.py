"""Operations in functions that XLA compiles: calls of the handler in ``horovod.xla``, in StableHLO."""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from packaging.version import Version
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import auto_control_deps

from horovod.common.collective.operations import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.common.process_sets import registered
from horovod.tensorflow.compiled_gradients import Done, factor, gradients_of
from horovod.xla import library
from horovod.xla.library import START, TAKE, TARGET
from horovod.xla.parts import parts_of
from horovod.xla.shapes import result_shapes

OLDEST = "2.19"
"""The first TensorFlow whose XLA calls them."""

_KINDS = {
    "horovod_allreduce": ALLREDUCE,
    "horovod_grouped_allreduce": ALLREDUCE,
    "horovod_broadcast": BROADCAST,
    "horovod_allgather": ALLGATHER,
    "horovod_grouped_allgather": ALLGATHER,
    "horovod_alltoall": ALLTOALL,
    "horovod_reducescatter": REDUCESCATTER,
    "horovod_grouped_reducescatter": REDUCESCATTER,
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
_PLATFORMS = ["CPU", "CUDA"]  # as it calls them. With several, the program is told first which it is for.

_ORDER_RESULT = (tf.int32, ())  # the first result of each call, by which they come one behind the other

# By graph: what the latest call has returned first, and the next one takes. A rank may wait within a call for
# the others, so all must make theirs in one order, the program's.
_latest: WeakKeyDictionary[Any, tf.Tensor] = WeakKeyDictionary()


# What every call of a compiled function changes, for all that TensorFlow can tell: then it runs the calls
# within one tf.function in the order of the program, as it runs others that have effects. A function that is
# called twice has the same names twice, and a rank may wait within a call for the others.
_ORDER = SimpleNamespace(_id="horovod's order", op=SimpleNamespace(type="order"))


@auto_control_deps.register_acd_resource_resolver
def _order_compiled_calls(op: Any, reads: Any, writes: Any) -> bool:
    """Whether it has added to what an operation of a graph reads and writes; see auto_control_deps."""
    if op.type != "StatefulPartitionedCall" or not op.node_def.attr["_XlaMustCompile"].b or _ORDER in writes:
        return False
    writes.add(_ORDER)
    return True


def run(op: str, inputs: Sequence[Any], name: str, attributes: Mapping[str, Any]) -> Any:
    """An operation as a part of the program that XLA compiles.

    Args:
        op: as the library of TensorFlow's operations calls it.
        inputs: what it takes: a tensor, or a list of them.
        name: by which the ranks match it.
        attributes: of the operation.

    Returns:
        What the operation of the library returns; of an alltoall the rows alone.

    Raises:
        ValueError: it is none of those that XLA can call, or its shapes are not known.
    """
    if op not in _KINDS:
        raise ValueError(
            f"{op} {name!r} cannot be part of a function that XLA compiles; operations on tensors can. Leave "
            "jit_compile=True away from the tf.function that calls it."
        )
    _register()
    grouped = isinstance(inputs[0], (list, tuple))
    tensors = [tf.convert_to_tensor(tensor) for tensor in (inputs[0] if grouped else inputs[:1])]
    if _KINDS[op] == ALLTOALL:
        if inputs[1].shape.num_elements() != 0:
            raise ValueError(
                f"{op} {name!r} takes no splits in a function that XLA compiles: the shape of its result "
                "must be known. Send equally many rows to all, padded, or leave jit_compile=True away."
            )
        return differentiable(op, tensors, name, attributes)[0], None
    results = differentiable(op, tensors, name, attributes)
    return results if grouped else results[0]


def differentiable(
    op: str, tensors: Sequence[tf.Tensor], name: str, attributes: Mapping[str, Any]
) -> list[tf.Tensor]:
    """The call, which has a gradient, which has one too.

    Args:
        op: as the library of TensorFlow's operations calls it.
        tensors: what it takes.
        name: by which the ranks match it.
        attributes: of the operation.

    Returns:
        The results.
    """

    @tf.custom_gradient
    def call(*given: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        def gradient(*gradients: tf.Tensor) -> list[tf.Tensor]:
            return gradients_of(Done(differentiable, op, given, name, attributes), gradients)

        return _call(op, given, name, attributes), gradient

    return list(call(*tensors))


def _call(op: str, tensors: Sequence[tf.Tensor], name: str, attributes: Mapping[str, Any]) -> list[tf.Tensor]:
    kind, process_set = _KINDS[op], registered(attributes["process_set_id"])
    for tensor in tensors:
        if not tensor.shape.is_fully_defined() or tensor.dtype not in _TYPES:
            raise ValueError(
                f"{op} {name!r} cannot be part of a function that XLA compiles: its tensor is of type "
                f"{tensor.dtype.name} and shape {tensor.shape}, which must be known when it is traced."
            )
    made = result_shapes(kind, [tuple(tensor.shape) for tensor in tensors], process_set)
    splits = [made[0][0] // (process_set.size() or 1)] * (process_set.size() or 1) if kind == ALLTOALL else []
    config = _config(op, name, attributes, splits)
    graph = tf.compat.v1.get_default_graph()
    order = _latest.get(graph, tf.zeros((), tf.int32))
    target, given, parts = TARGET, tensors, _parts(kind, tensors)
    if parts:
        config |= {"name": json.dumps(f"{name}.part"), "parts": f"{len(parts)} : i64"}
        target, given = TAKE, _start(order, tensors, parts, config)
    results = [_ORDER_RESULT, *((tensor.dtype, shape) for tensor, shape in zip(tensors, made, strict=True))]
    _latest[graph], *reduced = _part_of_program(target, [order, *given], results, config)
    return reduced


def _parts(kind: int, tensors: Sequence[tf.Tensor]) -> Sequence[int]:
    """How many tensors of an allreduce, in turn, start together; empty: all at once. On a GPU they do, and
    where hosts come and go: a rank that stays keeps what it has compiled, and one that is new must do alike.
    """
    if kind != ALLREDUCE or os.environ.get("HOROVOD_ELASTIC") == "1" or tf.config.list_logical_devices("GPU"):
        return ()
    return parts_of([tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors])


def _start(
    order: tf.Tensor, tensors: Sequence[tf.Tensor], parts: Sequence[int], config: Mapping[str, str]
) -> list[tf.Tensor]:
    """Each part as soon as its tensors are computed. The results only make the end come behind them."""
    given, tickets = iter(tensors), []
    for part, count in enumerate(parts):
        own = {**config, "part": f"{part} : i64"}
        tickets += _part_of_program(START, [order, *itertools.islice(given, count)], [_ORDER_RESULT], own)
    return tickets


def _config(op: str, name: str, attributes: Mapping[str, Any], splits: Sequence[int]) -> dict[str, str]:
    """What the handler is told, in StableHLO."""
    return {
        "kind": f"{_KINDS[op]} : i64",
        "reduce_op": f"{attributes.get('reduce_op', 0)} : i64",
        "prescale": f"{_exact(attributes, 'prescale')} : f64",
        "postscale": f"{_exact(attributes, 'postscale')} : f64",
        "root": f"{attributes.get('root_rank', 0)} : i64",
        "process_set": f"{attributes['process_set_id']} : i64",
        "name": json.dumps(name),
        "ordered": "1 : i64",
        "splits": f"array<i64{': ' if splits else ''}{', '.join(map(str, splits))}>",
    }


def _part_of_program(
    target: str,
    tensors: Sequence[tf.Tensor],
    results: Sequence[tuple[tf.DType, Any]],
    config: Mapping[str, str],
) -> list[tf.Tensor]:
    """A call of a handler. ``results``: their types and shapes."""
    types = [_type(tensor.shape, tensor.dtype) for tensor in tensors]
    made = ", ".join(_type(shape, dtype) for dtype, shape in results)
    arguments = ", ".join(["%platform: tensor<i32>", *(f"%a{at}: {kind}" for at, kind in enumerate(types))])
    values = ", ".join(f"%a{at}" for at in range(len(types)))
    returned = ", ".join(f"%r#{at}" for at in range(len(results)))
    told = ", ".join(f"{key} = {value}" for key, value in config.items())
    program = f"""module @horovod {{
  func.func public @main({arguments}) -> ({made}) {{
    %r:{len(results)} = stablehlo.custom_call @{target}({values})
      {{api_version = 4 : i32, backend_config = {{{told}}}, has_side_effect = true}}
      : ({", ".join(types)}) -> ({made})
    return {returned} : {made}
  }}
}}"""
    return gen_xla_ops.xla_call_module(
        tensors,
        version=_VERSION,
        module=program.encode(),
        Sout=[shape for _, shape in results],
        Tout=[dtype for dtype, _ in results],
        platforms=_PLATFORMS,
        has_token_input_output=False,
    )


def _type(shape: Any, dtype: tf.DType) -> str:
    return f"tensor<{'x'.join([*map(str, shape), _TYPES[dtype]])}>"


def _exact(attributes: Mapping[str, Any], which: str) -> str:
    """A factor as the bits of a float of 64 bits."""
    (whole,) = struct.unpack("Q", struct.pack("d", factor(attributes, which)))
    return f"0x{whole:016X}"


@functools.cache
def _register() -> None:
    """Makes the handler known to TensorFlow's XLA, once."""
    if Version(tf.__version__) < Version(OLDEST):  # 2.18 crashes when it calls one
        raise ValueError(
            f"XLA calls operations of horovod from TensorFlow {OLDEST} on, this is {tf.__version__}. Leave "
            "jit_compile=True away from functions that call hvd."
        )
    try:
        get_api = ctypes.CDLL(str(Path(tf.__file__).with_name("libtensorflow_cc.so.2")))[_GET_API]
    except (OSError, AttributeError):
        raise ValueError(
            f"This build of TensorFlow {tf.__version__} does not let libraries be part of what XLA compiles. "
            "Leave jit_compile=True away from functions that call hvd."
        ) from None
    if not library.register(get_api):
        raise ValueError(f"XLA of TensorFlow {tf.__version__} refuses the operations of horovod.")
