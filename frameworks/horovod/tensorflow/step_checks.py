"""The checks of ``common.training.step_checks`` on the gradients of one step, before they are reduced.

Whether a gradient is finite is computed where the gradient is; only the verdicts reach Python. In a graph the
checks are functions of Python that run with it, so their errors are TensorFlow's, with the same texts.

A graph has no function for the comparison after the first step if the ranks' variables are equal already when
the graph is made: what equal gradients change stays equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.common.training.agreement import at_construction
from horovod.common.training.step_checks import Difference, StepChecks, of_steps
from horovod.tensorflow.graph import is_compiled_by_xla, tf_variable

_FINITE, _NAN, _INF = range(3)
_KINDS = {_NAN: "NaN", _INF: "Inf"}
_COLLECTION = "horovod.step_checks"


def checked(
    gradients: Sequence[Any],
    variables: Sequence[Any],
    process_set: ProcessSet,
    subject: str,
    key: Hashable,
    finite: bool = True,
    remedy: str = "",
) -> list[Any]:
    """``gradients``, after the checks of a step; see ``common.training.step_checks``.

    Args:
        gradients: those of this rank; None where a variable has none.
        variables: what the gradients belong to; those of this rank alone are not compared.
        process_set: the ranks that reduce them.
        subject: what reduces them.
        key: what tells this training from others of the subject; equal on all ranks.
        finite: whether gradients must be finite, if the environment says so. Loss scaling copes by itself.
        remedy: what to add where the ranks' variables differ.
    """
    eagerly = tf.executing_eagerly()
    outlasts_job = not eagerly and not at_construction()
    checks = of_steps(process_set, subject, key, remedy, outlasts_job)
    if checks is None:
        return list(gradients)
    present = [index for index, gradient in enumerate(gradients) if gradient is not None]
    shared = [
        each for each in variables if hasattr(each, "assign")
    ]  # no input, and nothing of this rank alone
    if not eagerly:
        if not checks.nonfinite and checks.every == 0 and _are_equal_now(checks, shared):
            return list(gradients)
        if not checks.nonfinite and checks.every == 0 and is_compiled_by_xla():
            return list(gradients)  # XLA calls no functions of Python
        checks = of_steps(process_set, _numbered(subject), key, remedy, outlasts_job) or checks
    step = _Step(checks, [_name(variables[i]) for i in present], shared)
    codes = [_code(gradients[index]) for index in present] if checks.nonfinite and finite else []
    if eagerly:
        if checks.count_step():
            step.compare(*step.values())
        step.look(codes)
        return list(gradients)
    with tf.control_dependencies([_in_graph(step, codes)]):
        return [None if gradient is None else _identity(gradient) for gradient in gradients]


def _are_equal_now(checks: StepChecks, variables: Sequence[Any]) -> bool:
    """Whether all ranks' variables are equal while they make the graph, at the first of its kind; else, and
    where they cannot tell, the step after the first one is to say so.
    """
    if not at_construction() or not checks.begins_comparison():
        return False
    with tf.init_scope():
        if not tf.executing_eagerly():
            return False
        step = _Step(checks, [], variables)
        try:
            values = step.values()
        except (tf.errors.FailedPreconditionError, ValueError):  # a graph that makes its variables itself
            values = []
        if step.difference(values) is not None or not values:
            return False
    checks.first = False
    return True


class _Step:
    """The checks of one step, as functions of values that TensorFlow has computed."""

    def __init__(self, checks: StepChecks, with_gradient: Sequence[str], variables: Sequence[Any]) -> None:
        self.checks = checks
        self._with_gradient = with_gradient
        self._variables = variables

    def values(self) -> list[Any]:
        """The present values of the variables."""
        return [tf.convert_to_tensor(tf_variable(variable)) for variable in self._variables]

    def compare(self, *values: Any) -> bool:
        """Compares the values of the variables with the other ranks'."""
        self.checks.compare(self._contents(values))
        return True

    def difference(self, values: Sequence[Any]) -> Difference | None:
        """Without a verdict yet. Ranks that have no values differ from those that do."""
        return self.checks.difference(self._contents(values) if values else [("", b"none")])

    def look(self, codes: Sequence[Any]) -> bool:
        """Tells the other ranks of the first gradient that is not finite."""
        kinds = [_KINDS.get(int(code)) for code in codes]
        self.checks.note_first(zip(self._with_gradient, kinds, strict=False))  # none where it does not matter
        self.checks.check_gradients()
        return True

    def _contents(self, values: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
        for variable, value in zip(self._variables, values, strict=True):
            yield _name(variable), (value if hasattr(value, "tobytes") else value.numpy()).tobytes()


def _in_graph(step: _Step, codes: Sequence[Any]) -> Any:
    """The operation after which all checks are done. Variables are read only where they are compared."""
    due = tf.numpy_function(step.checks.count_step, [], tf.bool)
    due.set_shape(())
    compared = tf.cond(
        due, lambda: tf.numpy_function(step.compare, step.values(), tf.bool), lambda: tf.constant(True)
    )
    if not step.checks.nonfinite:
        return compared
    with tf.control_dependencies([compared]):
        given = tf.stack(codes) if codes else tf.constant([], tf.int32)
        return tf.numpy_function(step.look, [given], tf.bool)


def _numbered(subject: str) -> str:
    """``subject``, told from others in the same graph, whose checks may be made in any order."""
    if tf.executing_eagerly():
        return subject
    made = tf.compat.v1.get_default_graph().get_collection_ref(_COLLECTION)
    made.append(subject)
    return subject if len(made) == 1 else f"{subject}#{len(made)}"


def _code(gradient: Any) -> Any:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    if not values.dtype.is_floating:
        return tf.constant(_FINITE)
    broken = tf.where(tf.reduce_any(tf.math.is_nan(values)), _NAN, _INF)
    return tf.where(tf.reduce_all(tf.math.is_finite(values)), _FINITE, broken)


def _name(variable: Any) -> str:
    """What the program calls it; ``path`` of Keras says in which layers it is."""
    return str(getattr(variable, "path", "") or getattr(variable, "name", ""))


def _identity(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
    return tf.identity(gradient)
