"""Adding up the gradients of several backward passes before they are reduced over the ranks.

One *step* is ``backward_passes_per_step`` passes. Each pass adds its gradients to sums in variables; the
last one of a step reduces the totals, and sets the sums to zero. The totals are computed outside of the
branch that reduces them, so that each can leave as soon as it is there. Sparse gradients are added to dense
sums.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import rank
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.gradient_options import GradientSettings, check_passes
from horovod.tensorflow.gradient_reduction import LocalSources, Reducer
from horovod.tensorflow.graph import as_written, identity, tf_variable

_living: weakref.WeakSet[GradientAggregation] = weakref.WeakSet()


class GradientAggregation:
    """What both forms of it have in common; they differ in where their variables live.

    ``allreduce_func``: a function of gradients and variables that returns the reduced gradients.
    ``average_aggregated_gradients``: divides the totals by ``backward_passes_per_step``. ``sparse_as_dense``
    is accepted and not needed. ValueError unless ``backward_passes_per_step`` is positive.

    ``counter``: a variable, how many passes of the current step have been made; None before the first pass of
    a graph. After the last pass of a step it is 0.
    """

    _is_of_one_graph = False

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reducer,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        check_passes(backward_passes_per_step)
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_grads = allreduce_func
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.counter = None if self._is_of_one_graph else self._new_counter()
        self._local = LocalSources(process_set, scale_local_gradients)
        self._sums: dict[int, tuple[Any, tf.Variable]] = {}  # by variable, which is held along with it
        self._given: set[int] = set()  # of them, those that have had a gradient in this step
        _living.add(self)

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of the variable ``var`` on their rank."""
        self._local.register(var)

    def keep_local(self, layers: Sequence[Any]) -> None:
        """Keeps the gradients of the weights of Keras ``layers`` on their rank, whenever these are built."""
        self._local.layers += layers

    def local_variables(self) -> list[Any]:
        """Those of which the gradients stay on this rank."""
        return list(self._local)

    @as_written
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Adds one pass's gradients of the variables ``vars``. Returns in the last pass of a step the reduced
        gradients, and before it the sums so far, which are not to be applied. None stays None, unless the
        variable has had a gradient in another pass.
        """
        if self.backward_passes_per_step == 1:
            return self._finish(grads, vars)
        with tf.name_scope("gradient_aggregation"):
            return self._add(grads, vars)

    def _add(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        passes, counted = self._count()
        full = tf.equal(passes, self.backward_passes_per_step)
        totals, kept = {}, []
        for i in self._present(grads, vars):
            total_of = self._sum_of(vars[i], grads[i])
            total = self._read(total_of)
            if grads[i] is not None:
                total += tf.convert_to_tensor(grads[i])
            totals[i] = total
            kept.append(total_of.assign(tf.where(full, tf.zeros_like(total), total), read_value=False))
        reduced = self._reduced_when(full, totals, vars)
        return _after([counted, *kept], [reduced.get(i) for i in range(len(grads))])

    def _present(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[int]:
        """The variables that have a gradient in this pass or, of this step, in an earlier one. A graph is
        made once for all passes, so there it is in any other.
        """
        given = self._given if tf.executing_eagerly() else self._sums.keys()
        present = [i for i, g in enumerate(grads) if g is not None or identity(vars[i]) in given]
        self._given.update(identity(vars[i]) for i in present)
        return present

    @as_written
    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls ``apply_grads_closure`` after the last pass of a step. After the others it only counts the
        iteration, if ``optimizer`` has ``iterations``. ``args``: what the closure applies.
        """
        if self.backward_passes_per_step == 1:
            return apply_grads_closure()

        def count_only() -> Any:
            iterations = getattr(optimizer, "iterations", None)
            return None if iterations is None else tf_variable(iterations).assign_add(1, read_value=False)

        if tf.executing_eagerly():
            return apply_grads_closure() if int(self._counted()) == 0 else count_only()
        given = [each for each in tf.nest.flatten((args, kwargs)) if isinstance(each, tf.Tensor)]
        with tf.control_dependencies(given):  # which come after the counting
            return tf.cond(
                tf.equal(self._counted(), 0), lambda: _op(apply_grads_closure()), lambda: _op(count_only())
            )

    def forget(self, session: Any = None) -> None:
        """Drops the passes of a step that is not made. To be called outside of functions; ``session``: of the
        graph, where there is one.
        """
        self._given.clear()
        sums = [total for _, total in self._sums.values()]
        self._clear(sums if self.counter is None else [self.counter, *sums], session)

    def _count(self) -> tuple[Any, Any]:
        """How many passes the step has with this one; and the operation that notes it."""
        if self.counter is None:
            self.counter = self._new_counter()
        passes = self._read(self.counter) + 1
        kept = tf.where(passes >= self.backward_passes_per_step, tf.zeros_like(passes), passes)
        return passes, self.counter.assign(kept, read_value=False)

    def _counted(self) -> Any:
        if self.counter is None:
            raise ValueError("apply_gradients was called before compute_gradients")
        return self._read(self.counter)

    def _reduced_when(self, full: Any, totals: dict[int, Any], vars: Sequence[Any]) -> dict[int, Any]:
        """The gradients by place: reduced where ``full``, else the totals."""
        places = list(totals)

        def finish() -> list[Any]:
            self._given.clear()
            reduced = self._finish([totals.get(i) for i in range(len(vars))], vars)
            places[:] = [i for i, gradient in enumerate(reduced) if gradient is not None]
            return [tf.constant(True), *(tf.convert_to_tensor(reduced[i]) for i in places)]

        def keep() -> list[Any]:  # traced after `finish`, which knows what other ranks have
            present = [tf.identity(totals[i]) if i in totals else _zeros_of(vars[i]) for i in places]
            return [tf.constant(False), *present]

        _, *results = tf.cond(full, finish, keep)  # the first: branches must not be empty
        return dict(zip(places, results, strict=True))

    def _finish(self, totals: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        reduced = self._local.reduce(self.allreduce_grads, totals, vars)
        passes = self.backward_passes_per_step
        if not self.average_aggregated_gradients or passes == 1:
            return reduced
        return [None if total is None else total / tf.cast(passes, total.dtype) for total in reduced]

    def _new_counter(self) -> tf.Variable:
        return self._variable("aggregation_counter", (), tf.int64)

    def _sum_of(self, variable: Any, gradient: Any) -> tf.Variable:
        key = identity(variable)
        if key not in self._sums:
            made = self._variable(f"aggregated_gradient_{len(self._sums)}", variable.shape, gradient.dtype)
            self._sums[key] = (variable, made)
        return self._sums[key][1]

    def _variable(self, name: str, shape: Any, dtype: tf.DType) -> tf.Variable:
        """A new variable, zero."""
        raise NotImplementedError

    def _read(self, variable: tf.Variable) -> tf.Tensor:
        """The value of one of those variables."""
        raise NotImplementedError

    def _clear(self, variables: Sequence[tf.Variable], session: Any) -> None:
        """Makes them zero."""
        raise NotImplementedError


class LocalGradientAggregationHelper(GradientAggregation):
    """Aggregation in a graph that a session runs. Its variables are among the local variables of the graph;
    where these are not initialised, they count as zero. ``name``: of the variables. ``rank`` and
    ``optimizer_type`` are accepted and not needed. All else is said of ``GradientAggregation``.
    """

    _is_of_one_graph = True
    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reducer,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self._name = name

    def _variable(self, name: str, shape: Any, dtype: tf.DType) -> tf.Variable:
        return tf.compat.v1.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            name="_".join(filter(None, [self._name, name])),
            use_resource=True,
        )

    def _read(self, variable: tf.Variable) -> tf.Tensor:
        if tf.executing_eagerly():
            return variable.read_value()
        return tf.cond(
            variable.is_initialized(),
            variable.read_value,
            lambda: tf.zeros(variable.shape, variable.dtype),
        )

    def _clear(self, variables: Sequence[tf.Variable], session: Any) -> None:
        if session is not None:  # by operations that the graph has already: it may be finalized
            session.run([each.initializer for each in variables if each.graph is session.graph])


class LocalGradientAggregationHelperEager(GradientAggregation):
    """Aggregation in steps that run eagerly or are traced; its variables outlive the traces."""

    def _variable(self, name: str, shape: Any, dtype: tf.DType) -> tf.Variable:
        with tf.init_scope():
            return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)

    def _read(self, variable: tf.Variable) -> tf.Tensor:
        return variable.read_value()

    def _clear(self, variables: Sequence[tf.Variable], session: Any) -> None:
        if session is not None:
            return  # whose training these variables have no part in
        for variable in variables:
            variable.assign(tf.zeros(variable.shape, variable.dtype))


def make_aggregation(
    reducer: Reducer, settings: GradientSettings, name: str, in_session: bool
) -> GradientAggregation:
    """The aggregation of the passes of one optimizer, whose steps a session runs or not.

    Args:
        reducer: Reduces the sums.
        settings: How many passes are added up, and what becomes of the sums.
        name: Begins the names of the variables in a graph that a session runs.
        in_session: Whether that is where the steps run.
    """
    passes, average = settings.backward_passes_per_step, settings.average_aggregated_gradients
    where = (settings.process_set, settings.scale_local_gradients)
    if not in_session:
        return LocalGradientAggregationHelperEager(passes, reducer, settings.sparse_as_dense, average, *where)
    kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
    return LocalGradientAggregationHelper(
        passes, reducer, settings.sparse_as_dense, average, rank(), kind, *where, name
    )


def forget_passes(session: Any = None) -> None:
    """Drops the passes of steps that are not made, of all optimizers of this process.

    Args:
        session: Of the graph, where there is one.
    """
    for aggregation in list(_living):
        aggregation.forget(session)


def _after(done: Sequence[Any], results: list[Any]) -> list[Any]:
    """The results, in a graph not before what has to be done along with them."""
    if tf.executing_eagerly():
        return results
    with tf.control_dependencies([each for each in done if each is not None]):
        return [None if each is None else tf.identity(each) for each in results]


def _zeros_of(variable: Any) -> Any:
    return tf.zeros_like(tf.convert_to_tensor(tf_variable(variable)))


def _op(result: Any) -> Any:
    """What a branch returns in a graph: the operation that has run when ``result`` is there."""
    known = isinstance(result, tf.Operation) or hasattr(result, "op")
    return tf.group(result) if known else tf.no_op()
