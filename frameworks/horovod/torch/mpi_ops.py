"""The operations under the module name that existing scripts import; nothing here depends on MPI.

All names without an underscore are public. There is no ``__all__``: type checkers, which cannot evaluate one
that is made of a list, then see every name.
"""

from horovod.common import basics as _basics  # scripts import it
from horovod.common.collective.exports import *
from horovod.common.reduce_ops import handle_average_backwards_compatibility
from horovod.common.util import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from horovod.torch.compression import Compression
from horovod.torch.operations import ops as _ops

allreduce = _ops.allreduce
allreduce_ = _ops.allreduce_
allreduce_async = _ops.allreduce_async
allreduce_async_ = _ops.allreduce_async_
grouped_allreduce = _ops.grouped_allreduce
grouped_allreduce_ = _ops.grouped_allreduce_
grouped_allreduce_async = _ops.grouped_allreduce_async
grouped_allreduce_async_ = _ops.grouped_allreduce_async_
allgather = _ops.allgather
allgather_async = _ops.allgather_async
grouped_allgather = _ops.grouped_allgather
grouped_allgather_async = _ops.grouped_allgather_async
broadcast = _ops.broadcast
broadcast_ = _ops.broadcast_
broadcast_async = _ops.broadcast_async
broadcast_async_ = _ops.broadcast_async_
alltoall = _ops.alltoall
alltoall_async = _ops.alltoall_async
reducescatter = _ops.reducescatter
reducescatter_async = _ops.reducescatter_async
grouped_reducescatter = _ops.grouped_reducescatter
grouped_reducescatter_async = _ops.grouped_reducescatter_async
sparse_allreduce_async = _ops.sparse_allreduce_async
send = _ops.send
send_async = _ops.send_async
recv = _ops.recv
recv_async = _ops.recv_async
barrier = _ops.barrier
join = _ops.join
poll = _ops.poll
synchronize = _ops.synchronize
wait = _ops.wait
wait_async = _ops.wait_async
_handle_map = _ops._handle_map

# As functions of autograd.
HorovodAllreduce = _ops.functions["allreduce"]
HorovodGroupedAllreduce = _ops.functions["grouped_allreduce"]
HorovodAllgather = _ops.functions["allgather"]
HorovodGroupedAllgather = _ops.functions["grouped_allgather"]
HorovodBroadcast = _ops.functions["broadcast"]
HorovodAlltoall = _ops.functions["alltoall"]
HorovodReducescatter = _ops.functions["reducescatter"]
HorovodGroupedReducescatter = _ops.functions["grouped_reducescatter"]
