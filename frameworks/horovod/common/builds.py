"""What this build can use. The names are the questions that existing scripts ask."""

from __future__ import annotations


def mpi_threads_supported() -> bool:
    """Whether MPI may be called from several threads; ValueError where MPI is not enabled."""
    raise ValueError("Horovod MPI is not enabled: this version has none. Ask hvd.mpi_enabled() first.")


def mpi_enabled() -> bool:
    """Whether MPI is the controller of this job."""
    return False


def mpi_built() -> bool:
    """Whether MPI can be used here."""
    return False


def gloo_enabled() -> bool:
    """Whether a controller without MPI runs this job: always, unless MPI is the controller."""
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
