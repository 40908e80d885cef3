"""The hosts that a batch system has given to a job, from the variables that it sets: LSF, Slurm and PBS."""

from collections.abc import Mapping
from dataclasses import dataclass

from .hosts import Host, HostsError

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
    return _of_lsf(environ) or _of_slurm(environ) or _of_pbs(environ)


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
    return Allocation([Host(*each) for each in _of_file(_PBS_FILE, path).items()], _PBS_FILE)


def _of_lsf(environ: Mapping[str, str]) -> Allocation | None:
    """The first host of a job on an IBM CSM cluster is the launch node: it has one slot and runs no ranks."""
    if JOB not in environ:
        return None
    variable = next((name for name in (HOST_FILE, HOST_LIST) if environ.get(name)), None)
    if variable is None:
        return None
    text = environ[variable]
    names = _of_file(HOST_FILE, text) if variable == HOST_FILE else _of_list(text)
    found = list(names.items())
    if _LAUNCH_NODE in environ and len(found) > 1 and found[0][1] == 1:
        found = found[1:]
    return Allocation([Host(name, slots) for name, slots in found], variable, counts_ranks=True)


def _of_file(variable: str, path: str) -> dict[str, int]:
    """A line for each slot, which has the name of its host."""
    slots: dict[str, int] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                for name in line.split()[:1]:
                    slots[name] = slots.get(name, 0) + 1
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise HostsError(f"{variable}={path}: {reason}") from None
    if not slots:
        raise HostsError(f"{variable}={path}: no host in it")
    return slots


def _of_list(text: str) -> dict[str, int]:
    """Names and numbers of slots in turns."""
    words = text.split()
    slots: dict[str, int] = {}
    for name, count in zip(words[::2], words[1::2], strict=False):
        if not count.isdecimal() or len(count) > 7:
            raise HostsError(f"{HOST_LIST}: {text[:200]!r} is no list of hosts and slots, such as 'a 4 b 4'")
        slots[name] = slots.get(name, 0) + int(count)
    if len(words) % 2 or not slots:
        raise HostsError(f"{HOST_LIST}: {text[:200]!r} is no list of hosts and slots, such as 'a 4 b 4'")
    return slots
