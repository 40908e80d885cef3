"""The public functions of the MXNet adapter: for each its parameters, in order, with their defaults."""

from public_api import COMMON

FACTORS = "prescale_factor=1.0, postscale_factor=1.0"
REDUCTION = f"average=None, name=None, priority=0, {FACTORS}, process_set=gps, op=None"
SCATTER = f"op=0, name=None, priority=0, process_set=gps, {FACTORS}"
NAMED = "name=None, priority=0, process_set=gps"

MXNET = {
    **COMMON,
    "allreduce": f"tensor, {REDUCTION}",
    "allreduce_": f"tensor, {REDUCTION}",
    "grouped_allreduce": f"tensors, {REDUCTION}",
    "grouped_allreduce_": f"tensors, {REDUCTION}",
    "allgather": f"tensor, {NAMED}",
    "grouped_allgather": f"tensors, {NAMED}",
    "broadcast": f"tensor, root_rank, {NAMED}",
    "broadcast_": f"tensor, root_rank, {NAMED}",
    "alltoall": f"tensor, splits=None, {NAMED}",
    "reducescatter": f"tensor, {SCATTER}",
    "grouped_reducescatter": f"tensors, {SCATTER}",
    "join": "",
    "barrier": "process_set=gps",
    "broadcast_parameters": "params, root_rank=0, prefix=None, process_set=gps",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=gps",
    "allgather_object": "obj, name=None, process_set=gps",
    "DistributedOptimizer": "optimizer, gradient_predivide_factor=1.0, num_groups=0, process_set=gps",
    "DistributedTrainer": (
        "params, optimizer, optimizer_params=None, compression=none, gradient_predivide_factor=1.0, "
        "prefix=None, num_groups=0, process_set=gps"
    ),
}

TRAINER_METHODS = {"broadcast_parameters": "self, params=None, root_rank=0"}
