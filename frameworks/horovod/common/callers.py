"""What only the frames of callers tell. Nothing else in this library looks at frames: what is in them depends
on how others have written their code. For three things there is no other way:

* A warning is to point at the program, and not at this library.
* ``GradScaler.step`` reads the property ``_step_supports_amp_scaling`` of an optimizer and then looks at the
  gradients, which must be reduced by then; it calls nothing before. If the optimizer said that it does the
  scaling itself, each scaler would adjust its scale by the gradients of its rank. Others read the property
  too, as Lightning does, where nothing may be waited for.
* Keras's ``LossScaleOptimizer`` builds the optimizer that is in it, which does not know of it. Nor does
  Keras say anything else to an optimizer before the gradients of one rank decide whether they are applied.
"""

from __future__ import annotations

import sys
from typing import Any

_NOT_OF_THE_PROGRAM = ("horovod.", "tensorflow.python.autograph.")  # which calls some of our functions
_FRAMES = 8  # how far up to look for a wrapper; decorators may be between its function and ours


def level_of_the_program() -> int:
    """The ``stacklevel`` of a warning by the caller that is to point at the program, not at this library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_NOT_OF_THE_PROGRAM):
        level, frame = level + 1, frame.f_back
    return level


def is_read_by(module: str) -> bool:
    """Whether the property that calls this is read by code of a module whose name ends so."""
    return sys._getframe(2).f_globals.get("__name__", "").endswith(module)


def is_called_by_holder(inner: Any, attribute: str) -> bool:
    """Whether the method of ``inner`` that calls this is called by one of an object that has ``inner`` as its
    ``attribute``.
    """
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return False
        outer = frame.f_locals.get("self")
        if outer is not inner and getattr(outer, attribute, None) is inner:
            return True
        frame = frame.f_back
    return False
