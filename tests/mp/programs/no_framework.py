"""A job of plain Python: what the core offers without any framework."""

import sys

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects

hvd.init()
gathered = objects.allgather_object({"rank": hvd.rank(), "data": bytes(1000 * hvd.rank())})
root = objects.broadcast_object(gathered if hvd.rank() == 1 else None, root_rank=1)
heavy = {"torch", "tensorflow", "mxnet", "numpy", "keras"} & set(sys.modules)
assert [each["rank"] for each in gathered] == list(range(hvd.size()))
assert [len(each["data"]) for each in root] == [1000 * rank for rank in range(hvd.size())]
print(f"rank {hvd.rank()} of {hvd.size()} without frameworks: {not heavy}", flush=True)
hvd.shutdown()
