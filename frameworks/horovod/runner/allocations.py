"""The hosts that a batch system has given to a job, from the variables that it sets: LSF, Slurm and PBS."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .hosts import Host, HostsError, lines_of

JOB, HOST_FILE, HOST_LIST = "LSB_JOBID", "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS"
_LAUNCH_NODE = "CSM_ALLOCATION_ID"  # of systems whose jobs run their script on a node of its own
_NODES, _TASKS, _STEP_TASKS = "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"
_PBS_FILE = "PBS_NODEFILE"


@dataclass(frozen=True)
class Allocation:
    """The hosts, and the variable that names them. ``counts_ranks``: the slots are those of ranks; else they
    are tasks, and one task may be meant to start all the ranks of a host.
    """

    hosts: list[Host]
    variable: str
    counts_ranks: bool = False


def find(environ: Mapping[str, str]) -> Allocation | None:
    """What this process may use of several hosts; None: it runs in no batch job.

    Raises:
        HostsError: the variables say nothing that can be used.
    """
    try:
        return _of_lsf(environ) or _of_slurm(environ) or _of_pbs(environ)
    except HostsError as error:
        raise HostsError(f"{error}; -H names hosts in place of it") from None


def _of_slurm(environ: Mapping[str, str]) -> Allocation | None:
    """A step that has several tasks has started several launchers, and in one the tasks need not be those of
    the job: what it is given is its own host.
    """
    if not environ.get(_NODES) or not environ.get(_TASKS) or environ.get(_STEP_TASKS, "1") != "1":
        return None
    from horovod.bootstrap import slurm  # only here: the help is to be quick

    try:
        names, tasks = slurm.nodes(environ[_NODES]), slurm.tasks_per_node(environ[_TASKS])
    except ValueError as error:
        raise HostsError(f"{_NODES} and {_TASKS}: {error}") from None
    if len(names) != len(tasks):
        return None
    return Allocation([Host(name, count) for name, count in zip(names, tasks, strict=True) if count], _NODES)


def _of_pbs(environ: Mapping[str, str]) -> Allocation | None:
    path = environ.get(_PBS_FILE)
    if not path:
        return None
    return Allocation(_of_file(_PBS_FILE, path), _PBS_FILE)


def _of_lsf(environ: Mapping[str, str]) -> Allocation | None:
    """The first host of a job on an IBM CSM cluster is the launch node: it has one slot and runs no ranks."""
    if JOB not in environ:
        return None
    variable = next((name for name in (HOST_FILE, HOST_LIST) if environ.get(name)), None)
    if variable is None:
        return None
    text = environ[variable]
    found = _of_file(HOST_FILE, text) if variable == HOST_FILE else _of_list(text)
    if _LAUNCH_NODE in environ and len(found) > 1 and found[0].slots == 1:
        found = found[1:]
    return Allocation(found, variable, counts_ranks=True)


def _of_file(variable: str, path: str) -> list[Host]:
    """A line for each slot, which has the name of its host."""
    where = f"{variable}={path}"
    slots = Counter(name for line in lines_of(where, path) for name in line.split()[:1])
    if not slots:
        raise HostsError(f"{where}: no host in it")
    return [Host(name, count) for name, count in slots.items()]


def _of_list(text: str) -> list[Host]:
    """Names and numbers of slots in turns."""
    words = text.split()
    names, counts = words[::2], words[1::2]
    are_counts = all(count.isdecimal() and len(count) <= 7 for count in counts)
    if not names or len(names) != len(counts) or not are_counts:
        raise HostsError(f"{HOST_LIST}: {text[:200]!r} is no list of hosts and slots, such as 'a 4 b 4'")
    slots: Counter[str] = Counter()
    for name, count in zip(names, counts, strict=True):
        slots[name] += int(count)
    return [Host(name, count) for name, count in slots.items()]
