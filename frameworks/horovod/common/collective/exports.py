"""What every adapter offers as its own, whatever its framework, and how its ``__all__`` is made::

from horovod.common.collective.exports import *
from horovod.torch.mpi_ops import *

__all__ = [*public_names(globals()), "DistributedOptimizer"]
"""

from collections.abc import Mapping
from typing import Any

from horovod.common.basics import (
    counters,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    is_master,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from horovod.common.collective.operations import FUNCTIONS
from horovod.common.exceptions import HorovodInternalError, TensorMismatchError
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.progress import progress
from horovod.common.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod.common.stacks import stacks
from horovod.version import __version__

__all__ = [
    "__version__",
    "Adasum",
    "add_process_set",
    "Average",
    "ccl_built",
    "counters",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "HorovodInternalError",
    "init",
    "is_homogeneous",
    "is_initialized",
    "is_master",
    "local_rank",
    "local_size",
    "Max",
    "Min",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "ProcessSet",
    "Product",
    "progress",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "stacks",
    "start_timeline",
    "stop_timeline",
    "Sum",
    "TensorMismatchError",
]


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """The names for the ``__all__`` of a module that users import.

    Args:
        namespace: the ``globals()`` of the module, when all is imported.

    Returns:
        What every adapter offers, then the operations that this one has.
    """
    return [name for name in (*__all__, *FUNCTIONS) if name in namespace]
