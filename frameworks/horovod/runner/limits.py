"""What this host allows: how many ranks can be started, and the limit behind an error, with the remedy."""

import contextlib
import errno
import os
import resource
from dataclasses import dataclass

from . import cgroups

# Two pipes and the connection of each rank, of one elsewhere the connection; the pipes of each ssh; and what
# the launcher needs for itself.
_DESCRIPTORS_OF_A_RANK = 3
_DESCRIPTORS_OF_A_RANK_ELSEWHERE = 1
_DESCRIPTORS_OF_A_HOST = 3
_DESCRIPTORS = 32
_CROWDED = 8  # ranks for each core, above which most of the time goes into waiting for a turn


@dataclass(frozen=True)
class Load:
    """What a job asks of one process that starts ranks.

    ``ranks`` are started here, ``elsewhere`` on ``hosts`` other hosts; ``files`` are kept open for each rank
    of the job, as for its output, or for what it reports.
    """

    ranks: int
    elsewhere: int = 0
    hosts: int = 0
    files: int = 0

    @property
    def descriptors(self) -> int:
        """How many files must be open at once."""
        here = _DESCRIPTORS_OF_A_RANK * self.ranks
        there = _DESCRIPTORS_OF_A_RANK_ELSEWHERE * self.elsewhere + _DESCRIPTORS_OF_A_HOST * self.hosts
        return _DESCRIPTORS + here + there + self.files * (self.ranks + self.elsewhere)


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control groups."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroups.quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def crowding(ranks: int) -> str | None:
    """What to expect of so many ranks on the cores of this host; None: nothing special."""
    cores = usable_cores()
    if ranks <= _CROWDED * cores:
        return None
    shared = "1 core" if cores == 1 else f"{cores} cores"
    return (
        f"{ranks} ranks share {shared}: everything takes {ranks // cores} times as long as with -np {cores}; "
        "if they do not find each other in time, raise --start-timeout"
    )


def make_room(load: Load) -> None:
    """Raises the limits that this process may raise by itself, as far as the ranks need it. What it starts
    inherits them.
    """
    _raise(resource.RLIMIT_NOFILE, load.descriptors)
    _raise(resource.RLIMIT_NPROC, load.ranks)


def refusal(load: Load) -> str | None:
    """Why so many ranks cannot run, with the remedy; None: as far as the limits here tell they can."""
    ranks, processes = load.ranks, _most_processes()
    if ranks > processes:
        return f"-np {ranks} is more than the {processes} processes that this host allows: start fewer ranks"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and load.descriptors > files:
        needs = f"-np {ranks + load.elsewhere} needs {load.descriptors} open files"
        return f"{needs} and the limit is {files}: {_more_files(load)}"
    return None


def limit_behind(error: OSError, load: Load) -> str:
    """The limit that made ``error``, to be appended to it; empty when it was another reason."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"; the limit is {limit} open files: {_more_files(load)}"
    if error.errno == errno.EAGAIN:
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        return f"; the limit is {limit} processes of this user: raise it with ulimit -u"
    return ""


def _raise(limit: int, needed: int) -> None:
    """The soft limit, as far as the hard one allows."""
    soft, hard = resource.getrlimit(limit)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with contextlib.suppress(OSError, ValueError):  # the refusal says what it is then
        resource.setrlimit(limit, (wanted, hard))


def _more_files(load: Load) -> str:
    return f"raise it with ulimit -n {load.descriptors}"


def _most_processes() -> int:
    limits = [resource.getrlimit(resource.RLIMIT_NPROC)[0]]
    for name in ("pid_max", "threads-max"):
        try:
            with open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=1 << 22)
