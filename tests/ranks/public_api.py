"""What every adapter offers, and how a signature is written in the tables of public functions."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from horovod.common.collective.compression import NoneCompressor
from horovod.common.process_sets import global_process_set

COMMON = {
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "size": "",
    "local_size": "",
    "cross_size": "",
    "rank": "",
    "local_rank": "",
    "cross_rank": "",
    "is_master": "",
    "is_homogeneous": "",
    "counters": "",
    "progress": "step=None, steps=None, epoch=None, samples=0",
    "stacks": "",
    "mpi_threads_supported": "",
    "mpi_enabled": "",
    "gloo_enabled": "",
    "mpi_built": "",
    "gloo_built": "",
    "nccl_built": "",
    "ddl_built": "",
    "ccl_built": "",
    "cuda_built": "",
    "rocm_built": "",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}

VALUES = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}

# Importable from mpi_ops of every adapter besides its operations and what all adapters have.
MPI_OPS = ["is_homogeneous", "handle_average_backwards_compatibility", "_basics"]

METRIC = {"get_global_mean": "value, name=None, process_set=gps"}

# The methods of every state of elastic training.
STATE_METHODS = {
    "save": "self",
    "restore": "self",
    "sync": "self",
    "commit": "self",
    "check_host_updates": "self",
    "register_reset_callbacks": "self, callbacks",
    "on_reset": "self",
    "on_hosts_updated": "self, timestamp, update_res",
    "reset": "self",
}

INDICES = "samples, shuffle=True, seed=0, uneven='pad'"
BATCHES = "samples, batch_size, largest=None, shuffle=True, seed=0, drop_last=False"
RUN = "func=None, checkpoint_dir=None, every_commits=None, every_seconds=None, keep=3, allow_pickle=False"
RATE_SCALE = "ranks=None, rule='linear', warmup_steps=100"

# The methods of samplers and indices of elastic training.
INDICES_METHODS = {
    "set_epoch": "self, epoch",
    "record_batch": "self, batch_idx, batch_size",
    "get_indices": "self, batch_idx, batch_size",
    "state_dict": "self",
    "load_state_dict": "self, state_dict",
    "reset": "self",
}


def written(function: Callable[..., Any]) -> str:
    """A signature in the notation of the tables: names in order, with defaults."""
    # Of a class its own __init__: some Pythons look at an inherited __new__ first.
    made = isinstance(function, type)
    signature = inspect.signature(function.__init__ if made else function)
    parts = []
    for parameter in list(signature.parameters.values())[made:]:
        default = parameter.default
        text = f"={default!r}" if isinstance(default, str) else f"={default}"
        if default is global_process_set:
            text = "=gps"
        elif default is NoneCompressor:
            text = "=none"
        elif default is inspect.Parameter.empty:
            text = ""
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        parts.append(stars.get(parameter.kind, "") + parameter.name + text)
    return ", ".join(parts)


def check_elastic(elastic: ModuleType, functions: Mapping[str, str]) -> None:
    """The module ``elastic`` of an adapter offers ``functions``, and they have the methods of the tables."""
    assert {name: written(getattr(elastic, name)) for name in elastic.__all__} == functions
    for name in functions:
        made = getattr(elastic, name)
        methods = STATE_METHODS if name.endswith("State") else INDICES_METHODS
        if name.endswith(("State", "Sampler", "Indices")):
            assert {method: written(getattr(made, method)) for method in methods} == methods
        assert inspect.getdoc(made)


def check_mpi_ops(adapter: ModuleType, mpi_ops: ModuleType, operations: Iterable[str]) -> None:
    """Scripts import from ``mpi_ops`` what they find in the adapter."""
    names = [*COMMON, *VALUES, *operations, "HorovodInternalError", "__version__"]
    assert [name for name in names if getattr(mpi_ops, name, None) is not getattr(adapter, name)] == []
    assert [name for name in MPI_OPS if not hasattr(mpi_ops, name)] == []
