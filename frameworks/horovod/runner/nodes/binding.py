"""How the ranks of a host share its cores, as the kernel describes them, and its GPUs."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .. import cgroups

CORE, NUMA, NONE = "core", "numa", "none"
_SYSTEM = "/sys/devices/system"
_GPUS = "CUDA_VISIBLE_DEVICES"  # which ROCm knows, too

_Cores = frozenset[int]  # by the numbers that the kernel gives to hardware threads


@dataclass(frozen=True)
class Share:
    """What one rank gets: it runs on ``cores``, and may use ``threads`` for its computations."""

    cores: _Cores
    threads: int


def share_of_rank(way: str, local_rank: int, local_size: int) -> Share | None:
    """The share of a rank of this host, of the cores that this process may use; None: it is not bound."""
    if way == NONE:
        return None
    quota = cgroups.quota()
    found = share(way, local_rank, local_size, os.sched_getaffinity(0))
    return (
        found if quota is None else Share(found.cores, max(1, min(found.threads, int(quota) // local_size)))
    )


def share(
    way: str, local_rank: int, local_size: int, usable: Collection[int], system: str = _SYSTEM
) -> Share:
    """The share of one of ``local_size`` ranks of the cores ``usable``.

    By CORE the ranks get consecutive cores, with all hardware threads of each, and those of one NUMA node
    before those of the next. By NUMA they get whole nodes, which several ranks share where there are fewer.
    """
    nodes = _nodes(frozenset(usable), system)
    parts = [core for node in nodes for core in _cores_of(node, system)] if way == CORE else nodes
    if way == CORE and len(parts) < local_size:
        parts = [frozenset([thread]) for core in parts for thread in sorted(core)]
    rank = local_rank % local_size  # of an elastic job, one more than there are slots may run for a while
    if len(parts) >= local_size:
        cores: _Cores = frozenset().union(
            *parts[_begin(parts, rank, local_size) : _begin(parts, rank + 1, local_size)]
        )
        return Share(cores, len(cores))
    own = _begin(parts, rank, local_size)
    sharers = sum(_begin(parts, other, local_size) == own for other in range(local_size))
    return Share(parts[own], max(1, len(parts[own]) // sharers))


def visible_gpus(count: int, local_rank: int, local_size: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable by which a rank sees its ``count`` GPUs only. Where somebody has chosen some, ranks share
    those, if there are enough for all of this host: else the choice is not about the host, and stays.
    """
    if not count:
        return {}
    needed = count * local_size
    gpus = environ[_GPUS].split(",") if _GPUS in environ else [str(gpu) for gpu in range(needed)]
    first = local_rank % local_size * count
    return {_GPUS: ",".join(gpus[first : first + count])} if len(gpus) >= needed else {}


def _begin(parts: Sequence[_Cores], rank: int, size: int) -> int:
    return rank * len(parts) // size


def _nodes(usable: _Cores, system: str) -> list[_Cores]:
    """The usable cores of each NUMA node that has some; what belongs to none comes last."""
    folder = os.path.join(system, "node")
    numbers = [name.removeprefix("node") for name in _names(folder) if name.startswith("node")]
    numbers = sorted(filter(str.isdecimal, numbers), key=int)
    nodes = [_listed(os.path.join(folder, f"node{number}", "cpulist")) & usable for number in numbers]
    nodes.append(usable.difference(*nodes))
    return [node for node in nodes if node]


def _cores_of(threads: _Cores, system: str) -> list[_Cores]:
    """Hardware threads by the cores that have them, in their order."""
    cores, left = [], set(threads)
    while left:
        first = min(left)
        path = os.path.join(system, "cpu", f"cpu{first}", "topology", "thread_siblings_list")
        core = frozenset(_listed(path) & left | {first})
        cores.append(core)
        left -= core
    return cores


def _names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _listed(path: str) -> _Cores:
    """The numbers of a file such as "0-3,8"; none where there is no such file, as in some containers."""
    found: set[int] = set()
    try:
        with open(path, encoding="ascii") as file:
            for part in filter(None, file.read().strip().split(",")):
                first, _, last = part.partition("-")
                found.update(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        return frozenset()
    return frozenset(found)
