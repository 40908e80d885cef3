"""Who this process is in the job, as its launcher tells it through the environment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .text import shown

_RANGES = (("RANK", "SIZE"), ("LOCAL_RANK", "LOCAL_SIZE"), ("CROSS_RANK", "CROSS_SIZE"))
_MOST_DIGITS = 20
_VARIABLES = tuple(f"HOROVOD_{name}" for pair in _RANGES for name in pair)


@dataclass(frozen=True)
class Identity:
    """Position of a process among all, among those of its host, and of its host among the hosts."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    hostname: str


def from_environment(environ: Mapping[str, str]) -> Identity:
    """The identity that the launcher set; a single process when there is none.

    Raises ValueError, naming the variables, when they are incomplete or contradict each other, or when
    another launcher has started several processes: each of them would be rank 0 of a job of its own.
    """
    for source in _SOURCES:
        identity = source(environ)
        if identity is not None:
            return identity
    _refuse_other_launchers(environ)
    return Identity(0, 1, 0, 1, 0, 1, environ.get("HOROVOD_HOSTNAME", "localhost"))


def _from_horovodrun(environ: Mapping[str, str]) -> Identity | None:
    present = [name for name in _VARIABLES if name in environ]
    if not present:
        return None
    missing = [name for name in _VARIABLES if name not in environ]
    if missing:
        raise ValueError(
            f"{', '.join(present)} set but {', '.join(missing)} missing: set all six or none of them "
            "(horovodrun sets them for you)"
        )
    values = {name: _integer(name, environ[name]) for name in _VARIABLES}
    _check_ranges(values)
    fields = {name.removeprefix("HOROVOD_").lower(): value for name, value in values.items()}
    return Identity(hostname=environ.get("HOROVOD_HOSTNAME", "localhost"), **fields)


def _integer(name: str, text: str) -> int:
    try:
        if len(text) > _MOST_DIGITS:
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(f"{name}='{shown(text)}' is not an integer") from None


def _check_ranges(values: Mapping[str, int]) -> None:
    for position, extent in _RANGES:
        rank, size = f"HOROVOD_{position}", f"HOROVOD_{extent}"
        if not 0 <= values[rank] < values[size]:
            raise ValueError(f"{rank}={values[rank]} is not in 0 .. {size} - 1 ({size}={values[size]})")
    for extent in ("HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_SIZE"):
        if values[extent] > values["HOROVOD_SIZE"]:
            raise ValueError(
                f"{extent}={values[extent]} is larger than HOROVOD_SIZE={values['HOROVOD_SIZE']}"
            )
    _check_hosts(*(values[f"HOROVOD_{name}"] for name in ("SIZE", "LOCAL_SIZE", "CROSS_SIZE")))


def _check_hosts(ranks: int, local: int, hosts: int) -> None:
    """Every other host has a rank, too."""
    if ranks < local + hosts - 1:
        raise ValueError(
            f"HOROVOD_LOCAL_SIZE={local} and HOROVOD_CROSS_SIZE={hosts} need more ranks than "
            f"HOROVOD_SIZE={ranks}"
        )


# Variables that a launcher sets together, and that nobody else does: its name, how many processes it has
# started, and what stands beside that. Slurm sets SLURM_NTASKS also for a script that starts one process.
_OTHER_LAUNCHERS = (
    ("torchrun", "WORLD_SIZE", "RANK"),
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("mpirun", "PMI_SIZE", "PMI_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
)


def _refuse_other_launchers(environ: Mapping[str, str]) -> None:
    for launcher, extent, position in _OTHER_LAUNCHERS:
        text = environ.get(extent, "")
        if position in environ and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) > 1:
            raise ValueError(
                f"{launcher} started this process ({extent}={text}), which this version does not support: "
                f"start the job with horovodrun -np {text} ... If each process is to be a job of its own, "
                f"unset {extent}"
            )


# One reader per launcher, asked in this order; the first that finds its variables decides.
_SOURCES: tuple[Callable[[Mapping[str, str]], Identity | None], ...] = (_from_horovodrun,)
