"""The operations as an adapter offers them, on bytearrays: for ranks that need no framework. Importing torch
takes a core two seconds, and this a tenth of one.
"""

from horovod.common.collective.byte_objects import objects, operations
from horovod.common.collective.exports import *  # noqa: F403

allreduce_, allreduce_async_ = operations.allreduce_, operations.allreduce_async_
barrier, synchronize = operations.barrier, operations.synchronize
allgather_object, broadcast_object = objects.allgather_object, objects.broadcast_object
