"""Training with TensorFlow that goes on when workers are lost and when workers come::

import horovod.tensorflow as hvd

hvd.init()
state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)

@hvd.elastic.run
def train(state):
    for state.batch in range(state.batch, batches):
        train_one_batch()
        state.commit()

train(state)
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.elastic import ModelState
from horovod.common import basics
from horovod.common.basics import init, rank, shutdown  # noqa: F401  # scripts import them from here
from horovod.common.collective import byte_objects
from horovod.common.exceptions import HorovodInternalError  # noqa: F401  # likewise
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.decorator import internal_errors_of, run_with
from horovod.elastic.handlers import HandlerMaker, HandlerState
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale
from horovod.elastic.run import run_fn  # noqa: F401  # likewise
from horovod.elastic.state import ObjectState  # noqa: F401  # likewise
from horovod.elastic.variables import VariablesHandler
from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.gradient_aggregation import forget_passes

# How errors of our operations begin; see Call::Fail in frameworks/tensorflow_ops/collective.cc.
_FROM_OUR_OPERATION = re.compile(r"\bHorovod[A-Z]\w*: ")


def internal_errors() -> contextlib.AbstractContextManager[None]:
    """See ``internal_errors_of``."""
    return internal_errors_of(tf.errors.UnknownError, _FROM_OUR_OPERATION.search)


run = run_with(internal_errors)


def broadcast(variables: Sequence[Any], root_rank: int) -> None:
    """``hvd.broadcast_variables`` with the errors of elastic training."""
    with internal_errors():
        broadcast_variables(variables, root_rank)


class _Variables(VariablesHandler):
    """Of a list of variables, in a session where there is one."""

    def __init__(self, value: list[Any], session: Any) -> None:
        self._session = session
        super().__init__(value)

    def all_variables(self) -> list[Any]:
        return list(self.value)

    def read(self, variables: Sequence[Any]) -> list[Any]:
        if self._session is not None:
            return list(self._session.run(list(variables)))
        return [variable.numpy() for variable in variables]

    def write(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        if self._session is None:
            for variable, array in zip(variables, arrays, strict=True):
                variable.assign(array)
            return
        with self._session.graph.as_default():  # the program may have left it
            for variable, array in zip(variables, arrays, strict=True):
                variable.load(array, self._session)

    def forget_gradients(self) -> None:
        forget_passes(self._session)

    def broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        if self._session is None:
            broadcast(variables, root_rank)
            return
        # By no operation of the graph: its name would tell what this rank has added before, which a rank
        # that has just come has not; and the graph may be finalized.
        arrays = self.read(variables) if rank() == root_rank else None
        arrays = byte_objects.objects.broadcast_object(arrays, root_rank, name="state.sync(): variables")
        if rank() != root_rank:
            self.write(variables, arrays)

    def title(self) -> str:
        return "list of variables"


class TensorFlowState(HandlerState):
    """Variables of TensorFlow, and whatever else the training needs to go on.

    Args:
        variables: a list, in an order that is equal on all ranks. By default the global variables of the
            graph, of which there are none where TensorFlow executes eagerly.
        session: for variables of a graph of TensorFlow 1.
        **kwargs: further attributes, such as ``epoch=0``.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            variables = tf.compat.v1.global_variables()
        if session is None and not tf.executing_eagerly():
            session = tf.compat.v1.get_default_session()
        self._make_variables = functools.partial(_Variables, session=session)
        super().__init__(_broadcast_objects, basics.rank, variables=list(variables), **kwargs)

    def _maker_for(self, name: str, value: Any) -> HandlerMaker | None:
        return self._make_variables if name == "variables" else super()._maker_for(name, value)


class TensorFlowKerasState(ModelState):
    """A model of Keras on TensorFlow, its optimizer, and whatever else the training needs to go on.

    Args:
        model: built, so that it has weights.
        optimizer: by default that of the model, if it is compiled.
        backend: accepted and not needed.
        **kwargs: further attributes, such as ``epoch=0, batch=0``.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not tf.compat.v1.executing_eagerly_outside_functions():
            raise ValueError(
                "A state of a Keras model needs eager execution. Use hvd.elastic.TensorFlowState(session="
                "tf.compat.v1.keras.backend.get_session()), or drop disable_eager_execution()."
            )
        super().__init__(model, optimizer, **kwargs)

    def _broadcast(self, variables: Sequence[Any], root_rank: int) -> None:
        broadcast(variables, root_rank)


def indices_dataset(indices: ElasticIndices) -> tf.data.Dataset:
    """The indices of this rank that are left, whenever an iteration begins.

    Args:
        indices: make it an attribute of the state, and call its ``record_batch`` after each batch.

    Returns:
        A dataset of integers; ``dataset.map`` makes samples of them.
    """
    spec = tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(indices), output_signature=spec)


_broadcast_objects = functools.partial(byte_objects.objects.broadcast_object, name="state.sync(): objects")

__all__ = [
    "CheckpointError",
    "ElasticBatches",
    "ElasticIndices",
    "indices_dataset",
    "RateScale",
    "run",
    "TensorFlowKerasState",
    "TensorFlowState",
]
