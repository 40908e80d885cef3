"""The process group: what torch.distributed calls, by the names that it calls it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from horovod.torch.compiling import methods_outside_of_graphs
from horovod.torch.distributed import barriers, gathers, groups, peers, reductions
from horovod.torch.distributed.communicator import Communicator
from horovod.torch.distributed.work import joint

Tensors = Sequence[torch.Tensor]
_MANY_WORKS = 64
_DEVICES = [torch.device("cpu")]
# Whose methods have forms that torch.distributed itself does not use.
_ProcessGroup: Any = dist.ProcessGroup


@methods_outside_of_graphs  # torch calls them between graphs, where Dynamo would compile them
class ProcessGroupHorovod(_ProcessGroup):
    """A group of ranks whose collectives the core carries out. Made by ``dist.init_process_group("hvd")`` and
    ``dist.new_group``. What each operation does and raises is said in ``reductions``, ``gathers``, ``peers``
    and ``barriers``; a Work raises CollectiveTimeoutError, and HorovodInternalError when a rank is gone.
    """

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(self, communicator: Communicator, store: Any) -> None:
        super().__init__(communicator.rank, communicator.size)
        self._communicator = communicator
        self._store = store
        self._name = communicator.name
        self._description = ""
        self._coalesced: list[Any] | None = None
        self._prune_at = _MANY_WORKS  # so many of them are kept that some are over, perhaps

    # Who the group is.

    def getBackendName(self) -> str:
        return "hvd"

    name = getBackendName

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = self._communicator.name = name

    _set_group_name = setGroupName

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    _set_group_desc = setGroupDesc

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    @property
    def _device_types(self) -> list[torch.device]:
        return _DEVICES

    def _get_backend(self, device: torch.device) -> ProcessGroupHorovod:
        return self

    def _get_backend_name(self) -> str:
        return "hvd"

    def get_group_store(self) -> Any:
        return self._store

    def _get_sequence_number_for_group(self) -> int:
        return self._communicator.started

    def _set_sequence_number_for_group(self) -> None:
        """The operations of a group are counted from its beginning on."""

    def set_timeout(self, timeout: timedelta) -> None:
        self._communicator.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    # Reductions.

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        return reductions.allreduce(self._communicator, tensors, _reducing(opts, AllreduceOptions))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        return reductions.allreduce(self._communicator, tensors, _reducing(opts, AllreduceCoalescedOptions))

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        return reductions.reduce(self._communicator, tensors, opts or ReduceOptions())

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Any:
        options = _reducing(opts, ReduceScatterOptions)
        return reductions.reduce_scatter(self._communicator, outputs, inputs, options)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        options = _reducing(opts, ReduceScatterOptions)
        return reductions.reduce_scatter_single(self._communicator, [output], [given], options)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        options = _reducing(opts, ReduceScatterOptions)
        return reductions.reduce_scatter_single(self._communicator, outputs, inputs, options)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # What only moves.

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        return gathers.broadcast(self._communicator, tensors, opts or BroadcastOptions())

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        return gathers.allgather(self._communicator, outputs, inputs, opts or AllgatherOptions())

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        by_input = [[parts[i] for parts in outputs] for i in range(len(inputs))]
        return self.allgather(by_input, inputs, opts)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        return gathers.allgather_single(self._communicator, [output], [given], opts or AllgatherOptions())

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return gathers.allgather_single(self._communicator, outputs, inputs, opts or AllgatherOptions())

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        return gathers.gather(self._communicator, outputs, inputs, opts or GatherOptions())

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Any:
        return gathers.scatter(self._communicator, outputs, inputs, opts or ScatterOptions())

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        options = opts or AllToAllOptions()
        return gathers.alltoall_single(
            self._communicator, output, given, output_splits, input_splits, options
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return gathers.alltoall(self._communicator, outputs, inputs, opts or AllToAllOptions())

    # Between two ranks.

    def send(self, tensors: Tensors, dst: int, tag: int) -> Any:
        return self._noted(peers.send(self._communicator, tensors[0], dst, tag))

    def recv(self, tensors: Tensors, src: int, tag: int) -> Any:
        return self._noted(peers.recv(self._communicator, tensors[0], src, tag))

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        return self._noted(peers.recv(self._communicator, tensors[0], None, tag))

    # Of all ranks.

    def barrier(self, opts: Any = None) -> Any:
        return barriers.barrier(self._communicator, opts or BarrierOptions())

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        seconds = self._communicator.timeout if timeout is None else timeout.total_seconds()
        barriers.monitored_barrier(self._communicator, self._store, seconds, wait_all_ranks)

    # Groups of some of its ranks.

    def new_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta,
        pg_options: Any = None,
        group_name: str = "",
        group_desc: str | None = None,
    ) -> ProcessGroupHorovod | None:
        """As ``dist.new_group`` calls it on the default group, on all ranks; None for those that are no
        member.
        """
        communicator = groups.open_part(self.rank(), ranks, group_name, timeout.total_seconds())
        if communicator is None:
            return None
        made = ProcessGroupHorovod(communicator, dist.PrefixStore(f"{group_name}/", self._store))
        made.setGroupDesc(group_desc or "undefined")
        return made

    # Several operations that are waited for as one.

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []  # of an earlier block that has raised nobody asks
        self._prune_at = _MANY_WORKS

    def _end_coalescing(self, device: torch.device) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return joint(works)

    def _noted(self, work: Any) -> Any:
        if self._coalesced is None:
            return work
        self._coalesced.append(work)
        if len(self._coalesced) >= self._prune_at:  # a block that raises does not tell of its end
            self._coalesced = [
                work for work in self._coalesced if not work.is_completed() or work.exception()
            ]
            self._prune_at = max(_MANY_WORKS, 2 * len(self._coalesced))
        return work

    # The end.

    def shutdown(self) -> None:
        self._communicator.close()

    abort = shutdown

    def _has_hooks(self) -> bool:
        return False


def _reducing(given: Any, options: Any) -> Any:
    """Options, where a caller gives them, a reduction alone, or nothing."""
    if hasattr(given, "reduceOp"):
        return given
    made = options()
    if given is not None:
        made.reduceOp = given
    return made
