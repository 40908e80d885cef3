"""The public functions of the torch adapter: for each its parameters, in order, with their defaults."""

from public_api import COMMON, RUN

REDUCE = "average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=gps"
REDUCE_COMPRESSED = (
    "average=None, name=None, compression=none, op=None, "
    "prescale_factor=1.0, postscale_factor=1.0, process_set=gps"
)
SCATTER = "name=None, op=0, process_set=gps, prescale_factor=1.0, postscale_factor=1.0"
SCATTER_COMPRESSED = (
    "name=None, compression=none, op=0, process_set=gps, prescale_factor=1.0, postscale_factor=1.0"
)
ROOT = "tensor, root_rank, name=None, process_set=gps"

TORCH = {
    **COMMON,
    "allreduce": f"tensor, {REDUCE_COMPRESSED}",
    "allreduce_async": f"tensor, {REDUCE}",
    "allreduce_": f"tensor, {REDUCE}",
    "allreduce_async_": f"tensor, {REDUCE}",
    "grouped_allreduce": f"tensors, {REDUCE_COMPRESSED}",
    "grouped_allreduce_async": f"tensors, {REDUCE}",
    "grouped_allreduce_": f"tensors, {REDUCE}",
    "grouped_allreduce_async_": f"tensors, {REDUCE}",
    "allgather": "tensor, name=None, process_set=gps",
    "allgather_async": "tensor, name=None, process_set=gps",
    "broadcast": ROOT,
    "broadcast_async": ROOT,
    "broadcast_": ROOT,
    "broadcast_async_": ROOT,
    "grouped_allgather": "tensors, name=None, process_set=gps",
    "grouped_allgather_async": "tensors, name=None, process_set=gps",
    "alltoall": "tensor, splits=None, name=None, process_set=gps",
    "alltoall_async": "tensor, splits=None, name=None, process_set=gps",
    "reducescatter": f"tensor, {SCATTER_COMPRESSED}",
    "reducescatter_async": f"tensor, {SCATTER}",
    "grouped_reducescatter": f"tensors, {SCATTER_COMPRESSED}",
    "grouped_reducescatter_async": f"tensors, {SCATTER}",
    "sparse_allreduce_async": "tensor, name, op, process_set=gps",
    "send": "tensor, dest, tag=0, process_set=gps",
    "send_async": "tensor, dest, tag=0, process_set=gps",
    "recv": "tensor, source=None, tag=0, process_set=gps",
    "recv_async": "tensor, source=None, tag=0, process_set=gps",
    "barrier": "process_set=gps",
    "join": "device=-1",
    "poll": "handle",
    "synchronize": "handle",
    "wait": "handle, timeout=None",
    "wait_async": "handle",
    "broadcast_parameters": "params, root_rank, process_set=gps",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None, process_set=gps",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=gps",
    "allgather_object": "obj, name=None, process_set=gps",
    "DistributedOptimizer": (
        "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=0, "
        "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=gps, "
        "synchronize_in_backward=False"
    ),
    "SyncBatchNorm": (
        "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, process_set=gps, "
        "device=None, dtype=None"
    ),
    "convert_sync_batchnorm": "module, process_set=gps",
}

TORCH_ELASTIC = {
    "CheckpointError": "*args, **kwargs",
    "run": RUN,
    "ElasticBatches": "samples, batch_size, largest=None, shuffle=True, seed=0, drop_last=False",
    "ElasticSampler": "dataset, shuffle=True, seed=0, uneven='pad'",
    "LearningRateScale": "optimizer, ranks=None, rule='linear', warmup_steps=100",
    "TorchState": "model=None, optimizer=None, **kwargs",
}

# Importable from horovod.torch.mpi_ops besides the operations.
MPI_OPS = [
    "is_homogeneous",
    "handle_average_backwards_compatibility",
    "_basics",
    "_handle_map",
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "Compression",
    "check_installed_version",
    "get_average_backwards_compatibility_fun",
    "gpu_available",
    "num_rank_is_power_2",
]

# Importable from these modules besides, as programs do.
ELSEWHERE = {
    "horovod.common.elastic": [
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "ObjectState",
        "State",
        "run_fn",
    ],
    "horovod.torch.elastic": ["init", "run_fn", "shutdown"],
    "horovod.torch.elastic.state": ["ObjectState", "allgather_object"],
    "horovod.torch.functions": ["allgather", "broadcast_", "broadcast_async_", "rank", "size", "synchronize"],
    "horovod.torch.optimizer": ["_DistributedAdasumOptimizer", "_DistributedOptimizer"],
}

# name -> parameters, of horovod.common.util
UTIL = {
    "extension_available": "ext_base_name, verbose=False",
    "gpu_available": "ext_base_name, verbose=False",
    "mpi_built": "verbose=False",
    "gloo_built": "verbose=False",
    "nccl_built": "verbose=False",
    "ddl_built": "verbose=False",
    "ccl_built": "verbose=False",
    "env": "**kwargs",
    "num_rank_is_power_2": "num_rank",
    "check_extension": "ext_name, ext_env_var, pkg_path, *args",
    "get_average_backwards_compatibility_fun": "reduce_ops",
    "split_list": "l, n",
    "check_installed_version": "name, version, exception=None",
    "is_iterable": "x",
    "is_version_greater_equal_than": "ver, target",
}
