"""The public functions of the TensorFlow and Keras adapters: for each its parameters, in order, with their
defaults.
"""

from public_api import BATCHES, COMMON, INDICES, RATE_SCALE, RUN

DEVICES = "device_dense='', device_sparse=''"
FACTORS = "prescale_factor=1.0, postscale_factor=1.0"
SCOPE = "name=None, ignore_name_scope=False, process_set=gps"
GRADIENTS = "compression=none, sparse_as_dense=False"
TAPE = (
    f"gradtape, {DEVICES}, {GRADIENTS}, op=0, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    "process_set=gps"
)

TENSORFLOW = {
    **COMMON,
    "allreduce": (
        f"tensor, average=None, {DEVICES}, compression=none, op=None, {FACTORS}, name=None, process_set=gps, "
        "ignore_name_scope=False"
    ),
    "grouped_allreduce": (
        f"tensors, average=None, {DEVICES}, compression=none, op=None, {FACTORS}, process_set=gps, "
        "ignore_name_scope=False, name=None"
    ),
    "reducescatter": (
        "tensor, device_dense='', compression=none, op=0, name=None, process_set=gps, "
        f"ignore_name_scope=False, {FACTORS}"
    ),
    "grouped_reducescatter": (
        f"tensors, device_dense='', compression=none, op=0, process_set=gps, {FACTORS}"
    ),
    "allgather": f"tensor, {SCOPE}",
    "grouped_allgather": f"tensors, {SCOPE}",
    "broadcast": f"tensor, root_rank, {SCOPE}",
    "broadcast_": "variables, root_rank, name=None, process_set=gps",
    "alltoall": f"tensor, splits=None, {SCOPE}",
    "join": "",
    "barrier": "process_set=gps",
    "rank_op": "name=None",
    "local_rank_op": "name=None",
    "local_size_op": "name=None",
    "size_op": "process_set_id=0, name=None",
    "process_set_included_op": "process_set_id=0, name=None",
    "broadcast_variables": "variables, root_rank, process_set=gps, inplace=False",
    "broadcast_object": "obj, root_rank=0, session=None, name=None, process_set=gps",
    "broadcast_object_fn": "root_rank=0, session=None, name=None, process_set=gps",
    "allgather_object": "obj, session=None, name=None, process_set=gps",
    "broadcast_global_variables": "root_rank, process_set=gps",
    "BroadcastGlobalVariablesHook": "root_rank, device='', process_set=gps",
    "DistributedOptimizer": (
        f"optimizer, name=None, use_locking=False, {DEVICES}, {GRADIENTS}, backward_passes_per_step=1, op=0, "
        "gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, "
        "process_set=gps, scale_local_gradients=True"
    ),
    "DistributedGradientTape": f"{TAPE}, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None, scale_local_gradients=True",
    "SyncBatchNormalization": "fused=False, process_set=gps, **kwargs",
    "check_num_rank_power_of_2": "num_rank",
    "gpu_available": "ext_base_name, verbose=False",
    "handle_average_backwards_compatibility": "op, average",
}

GRADIENT = (
    "self, target, sources, output_gradients=None, use_generic_names=False, "
    "unconnected_gradients=UnconnectedGradients.NONE"
)

TENSORFLOW_ELASTIC = {
    "ElasticBatches": BATCHES,
    "RateScale": RATE_SCALE,
    "ElasticIndices": INDICES,
    "indices_dataset": "indices",
    "CheckpointError": "*args, **kwargs",
    "run": RUN,
    "TensorFlowKerasState": "model, optimizer=None, backend=None, **kwargs",
    "TensorFlowState": "variables=None, session=None, **kwargs",
}

KERAS_ELASTIC = {
    "CommitStateCallback": "state, batches_per_commit=1",
    "ElasticBatches": BATCHES,
    "LearningRateScaleCallback": "state, scale",
    "RateScale": RATE_SCALE,
    "ElasticIndices": INDICES,
    "KerasState": "model, optimizer=None, **kwargs",
    "CheckpointError": "*args, **kwargs",
    "run": RUN,
    "UpdateBatchStateCallback": "state",
    "UpdateEpochStateCallback": "state",
}

# The methods of what DistributedGradientTape returns.
TAPE_METHODS = {
    "gradient": GRADIENT,
    "get_local_and_global_gradients": GRADIENT,
    "register_local_source": "self, source",
}

V1_OPTIMIZER_METHODS = {
    "compute_gradients": "self, *args, **kwargs",
    "apply_gradients": "self, grads_and_vars, global_step=None, name=None",
    "register_local_var": "self, var",
}

# Of horovod.tensorflow.util, for other libraries.
TENSORFLOW_UTIL = {
    "_executing_eagerly": "",
    "_make_subgraph": "f",
    "_cache": "f",
    "vars_to_refs": "vars",
    "refs_to_vars": "refs",
}

AGGREGATION = {
    "gradient_aggregation.LocalGradientAggregationHelper": (
        "backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients, rank, "
        "optimizer_type, process_set=gps, scale_local_gradients=True, name=''"
    ),
    "gradient_aggregation_eager.LocalGradientAggregationHelperEager": (
        "backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients, "
        "process_set=gps, scale_local_gradients=True"
    ),
}

KERAS_OPTIMIZER = f"optimizer, name=None, {DEVICES}, {GRADIENTS}, gradient_predivide_factor=1.0, op=0, "
AGGREGATED = "backward_passes_per_step=1, average_aggregated_gradients=False"
PARTIAL = (
    f"{KERAS_OPTIMIZER}groups=None, process_set=gps, local_layers=None, scale_local_gradients=True, "
    f"{AGGREGATED}"
)
REDUCED_VALUE = f"{FACTORS}, op=None, compression=none"

BOTH_KERAS = {
    **COMMON,
    "PartialDistributedOptimizer": PARTIAL,
    "allgather": "value, name=None",
    "broadcast": "value, root_rank, name=None",
    "reducescatter": "value, name=None, op=0",
    "load_model": (
        "filepath, custom_optimizers=None, custom_objects=None, compression=none, legacy_opts=False, "
        f"{AGGREGATED}"
    ),
    "broadcast_global_variables": "root_rank",
    "broadcast_variables": "variables, root_rank, process_set=gps",
    "join": "",
    "barrier": "process_set=gps",
}

TENSORFLOW_KERAS = {
    **BOTH_KERAS,
    "DistributedOptimizer": (
        f"{KERAS_OPTIMIZER}{AGGREGATED}, num_groups=0, groups=None, process_set=gps, "
        "scale_local_gradients=True"
    ),
    "allreduce": f"value, name=None, average=None, {REDUCED_VALUE}",
    "broadcast_object": "obj, root_rank=0, session=None, name=None, process_set=gps",
    "allgather_object": "obj, session=None, name=None, process_set=gps",
}

KERAS = {
    **BOTH_KERAS,
    "DistributedOptimizer": f"{KERAS_OPTIMIZER}num_groups=0, groups=None",
    "allreduce": f"value, name=None, average=True, {REDUCED_VALUE}",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=gps",
    "allgather_object": "obj, name=None, process_set=gps",
}

RATE_CALLBACKS = {
    "LearningRateScheduleCallback": (
        "initial_lr=None, multiplier=1.0, start_epoch=0, end_epoch=None, staircase=True, "
        "momentum_correction=True, steps_per_epoch=None"
    ),
    "LearningRateWarmupCallback": (
        "initial_lr=None, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0"
    ),
}
CALLBACKS = {
    "BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "MetricAverageCallback": "device=''",
    "ProgressCallback": "batch_size=0",
    **RATE_CALLBACKS,
    "LRScheduleCallback": RATE_CALLBACKS["LearningRateScheduleCallback"],
}
BEST_MODEL = {
    "tensorflow.keras": (
        "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch'"
    ),
    "keras": "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'",
}
