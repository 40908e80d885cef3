"""The launchers that a rank recognises: by which variables each says who the process is."""

from collections.abc import Mapping
from typing import NamedTuple


class Source(NamedTuple):
    """One launcher, and its variables.

    ``rank`` to ``local_size`` are the four numbers of an identity; without names for the last two there is
    one process on each host. ``mark``: without it, or where only one of rank and size is set, the names say
    nothing, because others use them too; empty: they are the launcher's own. ``job``: what tells a job from
    others that it has started. ``node``: the name or number of the host, as the launcher counts them.
    """

    launcher: str
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    mark: str = ""
    job: tuple[str, ...] = ()
    node: str = ""

    def has_started(self, environ: Mapping[str, str]) -> bool:
        """Whether this launcher has started the process, among several or alone."""
        return all(name in environ for name in (self.rank, self.size, self.mark or self.rank))

    def in_part(self, environ: Mapping[str, str]) -> str:
        """What is wrong where it says one of rank and size and not the other: each process would be a job of
        its own. Empty: nothing.
        """
        found = [name in environ for name in (self.rank, self.size)]
        speaks = not self.mark or (self.mark in environ and self.mark != self.size)
        if not speaks or found[0] == found[1]:
            return ""
        present, missing = (self.rank, self.size) if found[0] else (self.size, self.rank)
        return (
            f"{present} is set and {missing} is not, as if {self.launcher} had started this process in "
            f"part: set both, with {self.size}=1 if this process is a job of its own, or none"
        )

    def missing(self, environ: Mapping[str, str]) -> list[str]:
        """The variables without which its numbers are not whole."""
        return [name for name in self.variables if name not in environ]

    @property
    def variables(self) -> list[str]:
        """The names of its numbers."""
        return list(filter(None, (self.rank, self.size, self.local_rank, self.local_size)))


_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_TORCHRUN = TORCHRUN_MARKS = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def _numbers(prefix: str) -> tuple[str, str, str, str]:
    return f"{prefix}_RANK", f"{prefix}_SIZE", f"{prefix}_LOCAL_RANK", f"{prefix}_LOCAL_SIZE"


TORCHRUN, MPICH, JSRUN, SRUN = "torchrun", "MPICH's mpirun", "jsrun", "srun"
OPEN_MPI, MVAPICH2 = "Open MPI", "MVAPICH2"
TORCH_PROGRAM = "a launcher for torch.distributed"
INDEXED_JOB = "an indexed Job of Kubernetes"

# One launcher may start another, and srun starts the helpers of both MPIs: the inner one comes first. jsrun
# sets the variables of Open MPI itself, as Spectrum MPI and PRRTE do; Intel MPI sets those of MPICH.
SOURCES = (
    Source(TORCHRUN, *_TORCH, mark=_TORCHRUN[0], job=_TORCHRUN, node="GROUP_RANK"),
    Source(JSRUN, *_numbers("JSM_NAMESPACE"), job=("LSB_JOBID", "JSM_JSRUN_STEP_ID", "PMIX_NAMESPACE")),
    Source(OPEN_MPI, *_numbers("OMPI_COMM_WORLD"), job=("PMIX_NAMESPACE",)),
    Source(MVAPICH2, *_numbers("MV2_COMM_WORLD"), job=("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")),
    Source(MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Only in a step: SLURM_PROCID is also in the environment of a batch script.
    Source(
        SRUN,
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        mark="SLURM_STEP_NUM_TASKS",
        job=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
        node="SLURMD_NODENAME",
    ),
    Source(TORCH_PROGRAM, *_TORCH, mark="WORLD_SIZE", job=("MASTER_PORT",)),
    Source(INDEXED_JOB, "JOB_COMPLETION_INDEX", "WORLD_SIZE", mark="JOB_COMPLETION_INDEX"),
)


def is_within_a_rank(environ: Mapping[str, str]) -> bool:
    """Whether a rank of horovodrun has started torchrun, and that this process: horovodrun takes the marks of
    a torchrun that has started it from what its ranks inherit.
    """
    return source_of(TORCHRUN).has_started(environ) and "HOROVOD_RANK" in environ


def source_of(launcher: str) -> Source:
    """By the launcher's name."""
    return next(source for source in SOURCES if source.launcher == launcher)
