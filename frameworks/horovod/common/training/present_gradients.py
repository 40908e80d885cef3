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

import array
from collections.abc import Collection, Iterable
from typing import Any

from horovod import _core
from horovod.common.process_sets import ProcessSet, check_process_set
from horovod.common.reduce_ops import Max
from horovod.common.set_agreement import exchange


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

    __slots__ = ("_agreed", "_last", "_name", "_process_set", "expected")

    def __init__(self, name: str, process_set: ProcessSet) -> None:
        self.expected: frozenset[int] = frozenset()
        """Those that some rank had in one of the last two steps: equal on all ranks."""
        self._last: frozenset[int] = frozenset()
        self._name = f"{name}.present"
        self._process_set = process_set
        self._agreed: dict[frozenset[int], frozenset[int]] = {}

    def ask(self, own: Iterable[int], slots: int) -> Question:
        """Tells the other ranks that this one has the slots ``own``, of so many, and asks for theirs."""
        return Question(self, own, slots, self._name, check_process_set(self._process_set))

    def learn(self, present: frozenset[int]) -> None:
        """Notes which slots some rank had in a step."""
        self.expected, self._last = self._last | present, present

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


class Question:
    """What this rank has in one step, on its way to the others. ``answer`` must be called, whatever happens:
    the next question has the same name.
    """

    __slots__ = ("_asked_by", "_handle", "_mask")

    def __init__(
        self, asked_by: PresentGradients, own: Iterable[int], slots: int, name: str, number: int
    ) -> None:
        self._asked_by = asked_by
        self._mask = array.array("B", bytes(slots))
        for slot in own:
            self._mask[slot] = 1
        address, _ = self._mask.buffer_info()
        spec: Any = (address, address, _core.DTYPES["uint8"], (slots,), slots, slots)
        self._handle = _core.submit(_core.ALLREDUCE, name, (spec,), Max, process_set=number, keep=self._mask)

    def answer(self) -> frozenset[int]:
        """The slots that some rank has."""
        _core.wait(self._handle)
        present = frozenset(slot for slot, has in enumerate(self._mask) if has)
        self._asked_by.learn(present)
        return present
