"""Which gradients the ranks reduce in a step for which not every rank has all of them, as when each rank
leaves out other layers.

A *slot* is a number for a gradient that a rank may have: that of one variable, dense or sparse. The ranks
must reduce the same slots in one step. Zeros travel for a slot that this rank lacks and another one has. What
no rank has is not reduced, and stays None: weight decay and momentum leave such a variable alone.

Where steps run eagerly, each says what it has: ``ask`` starts a reduction of one byte for each slot, which
travels beside the gradients. Slots that ranks have had lately need not wait for the answer. Where a graph is
made, the ranks tell each other what they have while they make it, so that running it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from horovod.common import basics
from horovod.common.collective import byte_objects
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.set_agreement import exchange
from horovod.common.training.presence import Presence

_T = TypeVar("_T")


class LocalVariable:
    """Stands in the place of a variable whose gradient stays on its rank: nothing else about it concerns the
    others.
    """

    name = path = ""
    dtype = "local"
    shape = ()


OF_THIS_RANK = LocalVariable()


class PresentGradients:
    """The slots that the ranks of ``process_set`` have in the steps of one training. ``name``: of the
    operations that ask.
    """

    def __init__(self, name: str, process_set: ProcessSet) -> None:
        self.expected: frozenset[int] = frozenset()
        """Those that some rank had in one of the last two steps: equal on all ranks."""
        self._last: frozenset[int] = frozenset()
        self._name = f"{name}.present"
        self._process_set = process_set
        self._presence = Presence(byte_objects.operations, self._name, process_set)
        self._agreed: dict[frozenset[int], frozenset[int]] = {}
        self._joins = basics.joins()

    def ask(self, own: Collection[int], slots: int) -> int:
        """Tells the other ranks that this one has the slots ``own``, of so many, and asks for theirs. Returns
        a handle for ``answer``, which must be called, whatever happens: the next question has the same name.
        """
        return self._presence.start(slot in own for slot in range(slots))

    def answer(self, question: int) -> frozenset[int]:
        """The slots that some rank has."""
        present = frozenset(slot for slot, has in enumerate(self._presence.finish(question)) if has)
        self.expected, self._last = self._last | present, present
        return present

    def reduce(
        self, own: Collection[int], slots: int, send: Callable[[Collection[int]], dict[int, _T]]
    ) -> dict[int, _T]:
        """The gradients of the slots that some rank has, of so many. ``send`` starts to reduce the slots that
        it is given: those expected, while the ranks ask each other, and then the others. What it was given
        and no rank has counts for nothing.
        """
        if self._joins != basics.joins():  # who joined early does not know what the others have had since
            self.expected = self._last = frozenset()
            self._joins = basics.joins()
        at_once = self.expected
        question = self.ask(own, slots)
        try:
            sent = send(at_once)
        finally:
            answer = self.answer(question)
        sent |= send(answer - at_once)
        return {slot: gradient for slot, gradient in sent.items() if slot in answer}

    def agreed(self, own: Collection[int]) -> frozenset[int]:
        """The slots that a graph must reduce that has ``own``. A collective where this rank has made no graph
        with all of these.
        """
        mine = frozenset(own)
        if mine not in self._agreed:
            enough = [known for known in self._agreed.values() if mine <= known]
            self._agreed[mine] = min(enough, key=len) if enough else self._union(mine)
        return self._agreed[mine]

    def _union(self, own: frozenset[int]) -> frozenset[int]:
        told = exchange(sorted(own), self._name, check_process_set(self._process_set))
        return frozenset(slot for theirs in told.values() for slot in theirs)
