"""What this build can use. The names are the questions that existing scripts ask."""

from __future__ import annotations


def mpi_threads_supported() -> bool:
    """Whether MPI may be called from several threads: unless HOROVOD_MPI_THREADS_DISABLE is set.

    Raises ValueError where MPI is not enabled.
    """
    from horovod.bootstrap.start import library

    if not mpi_enabled():
        raise ValueError("Horovod MPI is not enabled: this job does not use it. Ask hvd.mpi_enabled() first.")
    return not library().has_one_thread


def mpi_enabled() -> bool:
    """Whether this job's tensors travel by MPI."""
    from horovod.bootstrap.start import library

    return library().name == "mpi"


def mpi_built() -> bool:
    """Whether tensors can travel by MPI here."""
    from horovod.bootstrap import libraries

    return libraries.built("mpi")


def gloo_enabled() -> bool:
    """Whether a data plane without MPI runs this job: always, unless MPI is asked for."""
    return not mpi_enabled()


def gloo_built() -> bool:
    """Whether there is a controller and a CPU data plane without MPI: always (they are the core's own)."""
    return True


def nccl_built() -> int:
    """The version code of the NCCL library in use; 0 for none."""
    return 0


def ddl_built() -> bool:
    """Whether IBM DDL can be used."""
    return False


def ccl_built() -> bool:
    """Whether oneCCL can be used."""
    return False


def cuda_built() -> bool:
    """Whether collectives run on CUDA devices themselves. CUDA tensors work regardless, through host
    memory.
    """
    return False


def rocm_built() -> bool:
    """Whether collectives run on ROCm devices themselves."""
    return False
