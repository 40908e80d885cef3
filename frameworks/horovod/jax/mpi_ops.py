"""The operations under the module name that existing scripts know from other adapters.

``allreduce``, ``allgather``, ``broadcast``, ``alltoall`` and ``reducescatter`` take an array or a pytree of
arrays, eagerly and inside functions that JAX traces (``jit``, ``grad``, ``vmap``, ``scan``); the forms with
``_async`` are for what is not traced.
"""

from horovod.common.collective.exports import *
from horovod.jax import trees as _trees
from horovod.jax.operations import ops as _ops

allreduce = _trees.allreduce
allreduce_async = _ops.allreduce_async
grouped_allreduce = _ops.grouped_allreduce
grouped_allreduce_async = _ops.grouped_allreduce_async
allgather = _trees.allgather
allgather_async = _ops.allgather_async
grouped_allgather = _ops.grouped_allgather
grouped_allgather_async = _ops.grouped_allgather_async
broadcast = _trees.broadcast
broadcast_async = _ops.broadcast_async
alltoall = _trees.alltoall
alltoall_async = _ops.alltoall_async
reducescatter = _trees.reducescatter
reducescatter_async = _ops.reducescatter_async
grouped_reducescatter = _ops.grouped_reducescatter
grouped_reducescatter_async = _ops.grouped_reducescatter_async
barrier = _ops.barrier
join = _ops.join
poll = _ops.poll
synchronize = _ops.synchronize
wait = _ops.wait
wait_async = _ops.wait_async
