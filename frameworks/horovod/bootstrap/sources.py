"""The launchers that a rank recognises: by which variables each says who the process is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_GROUP = re.compile(r"(?P<tasks>[0-9]{1,7})(\(x(?P<nodes>[0-9]{1,7})\))?")


@dataclass(frozen=True)
class Source:
    """One launcher, and its variables: the four numbers of an identity. ``mark``: without it, or where only
    one of rank and size is set, the names say nothing, because others use them too; empty: they are the
    launcher's own.
    """

    launcher: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    mark: str = ""

    def has_started(self, environ: Mapping[str, str]) -> bool:
        """Whether this launcher has started the process, among several or alone.

        Raises ValueError when it says one of rank and size and not the other: each process would be a job of
        its own.
        """
        found = [name in environ for name in (self.rank, self.size)]
        if self.mark:
            return all(found) and self.mark in environ
        if any(found) and not all(found):
            present, missing = (self.rank, self.size) if found[0] else (self.size, self.rank)
            raise ValueError(
                f"{present} is set and {missing} is not, as if {self.launcher} had started this process in "
                "part: set both or none"
            )
        return all(found)

    def missing(self, environ: Mapping[str, str]) -> list[str]:
        """The variables without which its numbers are not whole."""
        names = (self.rank, self.size, self.local_rank, self.local_size)
        return [name for name in names if name not in environ]


_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

# One launcher may start another, and srun starts the helpers of both MPIs: the inner one comes first.
SOURCES = (
    Source("torchrun", *_TORCH, mark="TORCHELASTIC_RUN_ID"),
    Source(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Source("MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Source(
        "jsrun",
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK",
        "JSM_NAMESPACE_LOCAL_SIZE",
    ),
    # Only in a step: SLURM_PROCID is also in the environment of a batch script.
    Source(
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        mark="SLURM_STEP_NUM_TASKS",
    ),
    Source("a launcher for torch.distributed", *_TORCH, mark="WORLD_SIZE"),
)


def tasks_per_node(text: str) -> list[int]:
    """Slurm's "2(x3),1" in full: [2, 2, 2, 1]. Raises ValueError for anything else."""
    tasks: list[int] = []
    for part in text.split(","):
        match = _GROUP.fullmatch(part)
        if match is None or len(tasks) > 1 << 20:
            raise ValueError(f"{text[:200]!r} is no list of tasks such as 2(x3),1")
        tasks += [int(match["tasks"])] * min(int(match["nodes"] or 1), 1 << 20)
    return tasks
