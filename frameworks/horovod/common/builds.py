"""What this build can use. The names are the questions that existing scripts ask."""

from __future__ import annotations

import functools
import os


def mpi_threads_supported() -> bool:
    """Whether MPI may be called from several threads: unless HOROVOD_MPI_THREADS_DISABLE is set.

    Raises ValueError where MPI is not enabled.
    """
    from horovod.bootstrap import libraries

    if not mpi_enabled():
        raise ValueError("Horovod MPI is not enabled: this job does not use it. Ask hvd.mpi_enabled() first.")
    return not libraries.has_one_thread(os.environ)


def mpi_enabled() -> bool:
    """Whether this job uses MPI: its tensors travel by it, or it has carried the job's addresses and
    keys.
    """
    from horovod.bootstrap import controller
    from horovod.bootstrap.start import library

    return library().name == "mpi" or controller.is_mpi(os.environ)


def mpi_built() -> bool:
    """Whether this installation has a part for MPI, so that a job can use it."""
    from horovod.bootstrap import libraries

    return libraries.built("mpi")


def gloo_enabled() -> bool:
    """Whether a data plane without MPI runs this job: always, unless MPI is asked for."""
    return not mpi_enabled()


def gloo_built() -> bool:
    """Whether there is a controller and a CPU data plane without MPI: always (they are the core's own)."""
    return True


def nccl_built() -> int:
    """The version code of the NCCL library (or RCCL) that can be used here, such as 22304; 0 for none. Loads
    the library, but initialises no GPU.
    """
    return _version_code(_gpu_libraries()[1])


def ddl_built() -> bool:
    """Whether IBM DDL can be used."""
    return False


def ccl_built() -> bool:
    """Whether oneCCL can be used."""
    return False


def cuda_built() -> bool:
    """Whether collectives can run on CUDA devices themselves: there are a driver and NCCL. CUDA tensors work
    regardless, through host memory.
    """
    return _gpu_libraries()[0] == "nccl"


def rocm_built() -> bool:
    """Whether collectives can run on ROCm devices themselves: there are a driver and RCCL."""
    return _gpu_libraries()[0] == "rccl"


def _gpu_libraries() -> tuple[str, str]:
    """Name and file of the library for GPUs, which is looked for anew: a framework may have brought it."""
    from horovod.bootstrap import gpu_libraries

    found = gpu_libraries.find(os.environ)
    return found.name, found.library


@functools.cache
def _version_code(library: str) -> int:
    from horovod.bootstrap import gpu_libraries

    return gpu_libraries.version_code(library) if library else 0
