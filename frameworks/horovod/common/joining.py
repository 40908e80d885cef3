"""Where ranks meet without exchanging tensors: barrier and join."""

from __future__ import annotations

from horovod import _core
from horovod.common.handles import Handles
from horovod.common.process_sets import ProcessSet, check_process_set, global_process_set, included_sets


class Meetings(Handles):
    """The meeting operations of one adapter; the bound methods are the functions that users call."""

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when every rank of the process set has called it."""
        _core.run(_core.BARRIER, None, (), process_set=check_process_set(process_set))

    def join(self, device: int = -1) -> int:
        """Says that this rank has no more data, and returns when every rank has said so: the last to do so.

        Until then it takes part in every operation of every process set that it belongs to: with zeros in a
        Sum or Average (which still divides by the full size), with the neutral element in a Min, Max or
        Product, with nothing in an allgather, alltoall or reducescatter. A broadcast from it is an error.
        Afterwards all operations are available again. ``device`` is accepted and not needed.
        """
        self._deferred.flush()  # what was started before must not come after
        handles = [_core.submit(_core.JOIN, None, (), process_set=number) for number in included_sets()]
        outputs = [_core.wait(handle) for handle in handles]
        everybody = outputs[0]
        if not everybody:
            raise RuntimeError("the core gave a join no output")
        return int(memoryview(everybody[0].tobytes()).cast("q")[0])
