"""Who this process is in the job, as its launcher tells it through the environment."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .slurm import tasks_per_node
from .sources import SOURCES, SRUN, Source, is_within_a_rank, source_of
from .text import shown

HOROVODRUN, ALONE = "horovodrun", "nobody"

_RANGES = (("RANK", "SIZE"), ("LOCAL_RANK", "LOCAL_SIZE"), ("CROSS_RANK", "CROSS_SIZE"))
_MOST_DIGITS = 20
_VARIABLES = tuple(f"HOROVOD_{name}" for pair in _RANGES for name in pair)


class Identity(NamedTuple):
    """Position of a process among all, among those of its host, and of its host among the hosts."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    hostname: str
    launcher: str = HOROVODRUN  # who has started the process


def from_environment(environ: Mapping[str, str]) -> Identity:
    """The identity that the launcher set; a single process when there is none.

    Raises ValueError, naming the variables, when they are incomplete or contradict each other.
    """
    for reader in _READERS:
        identity = reader(environ)
        if identity is not None:
            return identity
    return Identity(0, 1, 0, 1, 0, 1, environ.get("HOROVOD_HOSTNAME", "localhost"), ALONE)


def _from_horovodrun(environ: Mapping[str, str]) -> Identity | None:
    present = [name for name in _VARIABLES if name in environ]
    if not present or is_within_a_rank(environ):
        return None
    missing = [name for name in _VARIABLES if name not in environ]
    if missing:
        raise ValueError(
            f"{', '.join(present)} set but {', '.join(missing)} missing: set all six or none of them "
            "(horovodrun sets them for you)"
        )
    values = {name: _integer(name, environ[name]) for name in _VARIABLES}
    _check_ranges(values)
    rank, size, local_rank, local_size, cross_rank, cross_size = (values[name] for name in _VARIABLES)
    hostname = environ.get("HOROVOD_HOSTNAME", "localhost")
    return Identity(rank, size, local_rank, local_size, cross_rank, cross_size, hostname)


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


def _from_launcher(environ: Mapping[str, str]) -> Identity | None:
    found = [source for source in SOURCES if source.has_started(environ)]
    if not found:
        _refuse_parts(environ)
        return None
    several = [source for source in found if _integer(source.size, environ[source.size]) != 1]
    if not several:
        return Identity(0, 1, 0, 1, 0, 1, "localhost", found[0].launcher)
    # srun may set the variables of MPICH in part.
    return _among_others(next((s for s in several if not s.missing(environ)), several[0]), environ)


def _refuse_parts(environ: Mapping[str, str]) -> None:
    """Where no launcher says all, one that says a part is an error: each process would be a job of one."""
    for text in filter(None, (source.in_part(environ) for source in SOURCES)):
        raise ValueError(text)
    if "PMIX_RANK" in environ and "PMIX_SERVER_URI" in {name[:15] for name in environ}:
        raise ValueError(
            "PMIX_RANK is set, so a launcher has started this process among others, but no variable says of "
            "how many. Start the job with mpirun of Open MPI, srun or horovodrun, which say it"
        )


def _among_others(source: Source, environ: Mapping[str, str]) -> Identity:
    size, missing = _integer(source.size, environ[source.size]), source.missing(environ)
    if missing:
        raise ValueError(
            f"{source.launcher} started this process ({source.size}={size}), but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set. Set {'it' if len(missing) == 1 else 'them'}, "
            f"or start the job with horovodrun -np {size} ..."
        )
    rank = _integer(source.rank, environ[source.rank])
    local_rank, local_size = _local_position(source, environ)
    for name, number, extent, limit in (
        (source.rank, rank, source.size, size),
        (source.local_rank, local_rank, source.local_size, local_size),
        (source.local_size, local_size - 1, source.size, size),
    ):
        if not 0 <= number < limit:
            raise ValueError(f"{name}={environ[name]} does not go with {extent}={environ[extent]}")
    _check_agreement(source, rank, size, environ)
    hostname = _hostname(source, environ) if local_size < size else "localhost"
    # On several hosts, which host is which is known when the ranks have met: see ``placed``.
    return Identity(rank, size, local_rank, local_size, 0, 1, hostname, source.launcher)


def _local_position(source: Source, environ: Mapping[str, str]) -> tuple[int, int]:
    """Slurm says the second number for all nodes; on Kubernetes each process has a pod of its own."""
    if not source.local_rank:
        return 0, 1
    local_rank = _integer(source.local_rank, environ[source.local_rank])
    text = environ[source.local_size]
    if source.launcher != SRUN:
        return local_rank, _integer(source.local_size, text)
    try:
        return local_rank, tasks_per_node(text)[_integer("SLURM_NODEID", environ.get("SLURM_NODEID", "0"))]
    except (IndexError, ValueError) as error:
        raise ValueError(f"{source.local_size}: {error}") from None


def _check_agreement(source: Source, rank: int, size: int, environ: Mapping[str, str]) -> None:
    """torch.distributed in the same job asks RANK and WORLD_SIZE, which are never overwritten."""
    for name, own, number in (("RANK", source.rank, rank), ("WORLD_SIZE", source.size, size)):
        told = environ.get(name, "")
        if told and _integer(name, told) != number:
            raise ValueError(
                f"{name}={shown(told)} contradicts {own}={environ[own]} of {source.launcher}, which started "
                f"this process: unset {name}, or set it to the same number"
            )


def _hostname(source: Source, environ: Mapping[str, str]) -> str:
    """Different for each host that the launcher counts: two of its nodes may be on one machine."""
    own = os.uname().nodename
    node = environ.get(source.node, "")
    name = f"{own} (node {node})" if node.isdecimal() else node or own
    return environ.get("HOROVOD_HOSTNAME") or name


def placed(identity: Identity, hosts: Sequence[int]) -> Identity:
    """``identity`` with its position among the hosts, once it is known which rank is on which.

    Args:
        identity: of this process.
        hosts: for each rank the number of its host; empty when all are on one.

    Returns:
        The identity whose ``cross_rank`` counts the hosts that have its local rank, in their order.
    """
    if not hosts:
        return identity
    ranks = Counter(hosts)
    alike = sorted(host for host in ranks if ranks[host] > identity.local_rank)
    return identity._replace(cross_rank=alike.index(hosts[identity.rank]), cross_size=len(alike))


def reason(identity: Identity, environ: Mapping[str, str]) -> str:
    """Which launcher started the job and which variables say so, for a log."""
    source = source_of(identity.launcher)
    numbers = [f"{name}={shown(environ[name])}" for name in source.variables if name in environ]
    whole = [s for s in SOURCES if s.has_started(environ) and not s.missing(environ)]
    others = [s.launcher for s in whole if s.size != source.size]
    passed_over = f"; those of {', '.join(others)} are set, too, and count less" if others else ""
    return f"{source.launcher} started this job: {', '.join(numbers)} say who this rank is{passed_over}"


# One reader per way to start, asked in this order; the first that finds its variables decides.
_READERS: tuple[Callable[[Mapping[str, str]], Identity | None], ...] = (_from_horovodrun, _from_launcher)
