"""How many ranks a job has, on which hosts, and who starts them: from options, and from a batch system."""

import argparse
import math
from collections.abc import Iterator, Mapping

from . import allocations, hosts, launchers, limits, meeting
from .allocations import Allocation
from .command_line import exports, values
from .command_line.origins import COMMAND_LINE
from .hosts import Host, HostsError

OWN, MPI, JSRUN = "gloo", "mpi", "jsrun"
_PLACES = ("hosts", "hostfile")
_CHOICES = ("include", "exclude")

# Each of them tells an MPI launcher the hosts of its allocation.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "COBALT_NODEFILE", allocations.JOB)


def place(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Completes ``num_proc``, ``host_list`` and ``controller`` of the options.

    Raises:
        HostsError: they contradict each other, or say too little.
    """
    _check_restarts(arguments)
    _take_allocation(arguments, environ)
    if is_elastic(arguments):
        _place_elastic(arguments)
        return
    _refuse_elastic(arguments)
    _choose_jsrun(arguments, environ)
    arguments.joining = 0
    if arguments.rendezvous is None:
        _refuse_meeting(arguments)
        arguments.host_list, arguments.num_proc = _hosts(arguments)
    else:
        _refuse_choice(arguments)
        arguments.host_list, arguments.num_proc = meeting.place(arguments)
    count = arguments.num_proc
    if count < 1:
        raise HostsError(f"-np {count}: at least 1 rank is needed, for example -np 2")
    hosts.check_slots(arguments.host_list, count)
    arguments.controller = arguments.controller or OWN
    _check_controller(arguments)


def says_where(arguments: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """Whether there is anything that says how many ranks to start."""
    names = ("num_proc", "nnodes", "nproc_per_node", *_PLACES, "min_np", "host_discovery_script")
    return any(_given(arguments, *names)) or bool(allocations.find(environ))


def is_elastic(arguments: argparse.Namespace) -> bool:
    """Whether the job goes on when ranks are lost or come."""
    return arguments.min_np is not None or arguments.host_discovery_script is not None


def _place_elastic(arguments: argparse.Namespace) -> None:
    """Completes ``num_proc``, ``min_np`` and ``host_list``, which is empty where a script says the hosts."""
    if uses_mpi(arguments):
        raise HostsError(
            "--mpi and --jsrun: in an elastic job horovodrun starts and ends each process itself; leave them "
            "out"
        )
    if arguments.stdin_rank is not None:
        raise HostsError(
            "--stdin-rank: in an elastic job ranks pass from process to process, and your terminal cannot; "
            "leave it out, or debug in a job without --min-np"
        )
    if arguments.rendezvous is not None or arguments.host_discovery_script is not None:
        _refuse_choice(arguments)
    if arguments.rendezvous is not None:
        arguments.num_proc = _number_at_start(arguments)
        arguments.host_list = meeting.place_elastic(arguments)
    elif arguments.host_discovery_script is None:
        places = (arguments.hosts, arguments.hostfile, arguments.allocation)
        if arguments.num_proc is None and all(place is None for place in places):
            arguments.num_proc = arguments.max_np or arguments.min_np
        arguments.host_list, arguments.num_proc = _hosts(arguments)
        hosts.check_slots(arguments.host_list, arguments.num_proc)
    else:
        _check_script(arguments.host_discovery_script)
        if any(_given(arguments, *_PLACES)):
            raise HostsError("--host-discovery-script says where to start: leave -H and --hostfile out")
        arguments.host_list = []
        arguments.num_proc = _number_at_start(arguments)
    _check_cooldown(arguments)
    _check_order({"--min-np": arguments.min_np, "-np": arguments.num_proc, "--max-np": arguments.max_np})
    arguments.min_np = arguments.num_proc if arguments.min_np is None else arguments.min_np
    arguments.controller = OWN


def _check_order(given: Mapping[str, int | None]) -> None:
    for lower, upper in (("--min-np", "--max-np"), ("--min-np", "-np"), ("-np", "--max-np")):
        few, many = given[lower], given[upper]
        if few is not None and few < 1:
            raise HostsError(f"{lower} {few}: at least 1 rank is needed")
        if few is not None and many is not None and few > many:
            raise HostsError(f"{lower} {few} is more than {upper} {many}: lower {lower} or raise {upper}")


def _check_script(script: str) -> None:
    if not script.strip():
        raise HostsError("--host-discovery-script: expected a command that prints the hosts")


def _check_cooldown(arguments: argparse.Namespace) -> None:
    least, most = arguments.blacklist_cooldown_range or (0.0, 0.0)
    if least > most:
        raise HostsError(f"--blacklist-cooldown-range {least:g} {most:g}: the first comes behind the last")


def _number_at_start(arguments: argparse.Namespace) -> int:
    """With how many ranks the job begins, where a script says the hosts."""
    asked = arguments.min_np if arguments.num_proc in (None, values.AUTO) else arguments.num_proc
    if asked is None:
        raise HostsError("-np is missing: say with how many ranks the job begins, for example -np 2")
    return int(asked)


def _refuse_elastic(arguments: argparse.Namespace) -> None:
    """What means nothing where the number of ranks is fixed. Of those of Horovod 0.28 a warning tells."""
    for option in _given(arguments, "spares", "chaos", "preemption_signal", "preemption_file"):
        raise HostsError(f"{option}: only in an elastic job; give --min-np, too, or leave {option} out")
    old = ("max_np", "reset_limit", "elastic_timeout", "slots_per_host", "blacklist_cooldown_range")
    for option in _given(arguments, *old):
        arguments.warnings.append(f"{option} has no effect: only in an elastic job; give --min-np, too")


def _check_restarts(arguments: argparse.Namespace) -> None:
    if not arguments.max_restarts:
        return
    if is_elastic(arguments):
        raise HostsError("--max-restarts: an elastic job goes on by itself; --reset-limit says how often")
    if uses_mpi(arguments):
        raise HostsError("--max-restarts: mpirun and jsrun start ranks once; leave it out")
    if arguments.rendezvous is not None:
        raise HostsError("--max-restarts: hosts that dial serve one start; give --min-np for more than one")


def _refuse_meeting(arguments: argparse.Namespace) -> None:
    """What means nothing where no host dials."""
    for option in _given(arguments, "wait_for_hosts", "node_rank"):
        raise HostsError(f"{option}: only with --rendezvous HOST:PORT, where the hosts meet")


def uses_mpi(arguments: argparse.Namespace) -> bool:
    """Whether another launcher starts the ranks."""
    return arguments.controller in (MPI, JSRUN)


def leaves_hosts_to_launcher(arguments: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """Whether mpirun knows the hosts itself: nobody has named any, and an allocation has some."""
    is_named = any(_given(arguments, *_PLACES, *_CHOICES))
    return not is_named and any(name in environ for name in _ALLOCATIONS)


def _take_allocation(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """The hosts that a batch system gives, where the options name none. mpirun knows them itself."""
    arguments.allocation = None
    if any(_given(arguments, *_PLACES, "rendezvous", "host_discovery_script")):
        return
    found = allocations.find(environ)
    is_chosen = any(_given(arguments, *_CHOICES))
    if found is not None and (found.counts_ranks or is_chosen or not uses_mpi(arguments)):
        arguments.allocation = found
        arguments.origins["allocation"] = f"environment variable {found.variable}"


def _choose_jsrun(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """In an LSF job that has it, it is the way to the hosts."""
    import shutil  # only here: the help is to be quick

    is_lsf = arguments.allocation is not None and allocations.JOB in environ
    if is_lsf and arguments.controller is None and shutil.which("jsrun") is not None:
        arguments.controller = JSRUN
        arguments.origins["controller"] = f"environment variable {allocations.JOB}"


def _hosts(arguments: argparse.Namespace) -> tuple[list[Host], int]:
    """The hosts that the job may use, and how many ranks it has."""
    asked = arguments.num_proc
    nnodes, per_node = arguments.nnodes, arguments.nproc_per_node
    allocation = arguments.allocation
    if asked is None and per_node is None and nnodes is None and allocation is None:
        raise HostsError("-np is missing: say how many ranks to start, for example -np 2, or -np auto")
    if arguments.hosts is not None and arguments.hostfile is not None:
        raise HostsError("-H and --hostfile both say where to start: give one of them")
    np = None if asked == values.AUTO else asked
    if arguments.hosts is not None:
        found = hosts.parse(arguments.hosts)
    elif arguments.hostfile is not None:
        found = hosts.read_hostfile(arguments.hostfile)
    elif allocation is not None:
        found = _allocated(allocation, np, nnodes, per_node)
    else:
        _refuse_choice(arguments)
        found = [_own_host(np, per_node)]
    if any(_given(arguments, *_CHOICES)):
        found = hosts.select(found, arguments.include, arguments.exclude or (), launchers.identity)
    hosts.check_names("-x", exports.of_hosts(arguments.env or {}), found, launchers.identity)
    return hosts.narrow(launchers.united(found), np, nnodes, per_node)


def _allocated(
    allocation: Allocation, np: int | None, nnodes: int | None, per_node: int | None
) -> list[Host]:
    """The hosts of an allocation. Where that counts tasks, who says how many ranks run on a host is right."""
    found = allocation.hosts
    if allocation.counts_ranks:
        return found
    if per_node is None and np is not None and (nnodes or len(found) == 1):
        per_node = math.ceil(np / (nnodes or 1))
    return [Host(host.name, max(host.slots, per_node or 0)) for host in found]


def _refuse_choice(arguments: argparse.Namespace) -> None:
    """What means nothing where there are no hosts to choose from."""
    for option in _given(arguments, *_CHOICES):
        raise HostsError(f"{option}: it chooses among hosts of -H, --hostfile or a batch system only")


def _own_host(np: int | None, per_node: int | None) -> Host:
    if np is not None and per_node is not None and np > per_node:
        asked = f"-np {np} with --nproc-per-node {per_node}"
        raise HostsError(f"{asked} needs more hosts than this one: name them with -H or --hostfile")
    return Host("localhost", per_node or np or limits.usable_cores())


def _check_controller(arguments: argparse.Namespace) -> None:
    """Refuses options that whoever starts the ranks does not have, or warns of those of Horovod 0.28."""
    if not uses_mpi(arguments):
        for name, whose in (("mpi_args", "mpirun"), ("binding_args", "mpirun or jsrun")):
            for option in _given(arguments, name):
                if not _is_overruled(arguments, name):
                    arguments.warnings.append(f"{option} has no effect: it is for {whose}; add --mpi")
        return
    if arguments.bind_to not in (None, values.BINDINGS[-1]):
        raise HostsError("--bind-to: mpirun and jsrun bind ranks in their own ways: see --binding-args")
    for option, value in (("--gpus-per-rank", arguments.gpus_per_rank), ("--wdir", arguments.wdir)):
        if value:
            raise HostsError(f"{option}: mpirun and jsrun start ranks in their own ways; leave it out")
    if exports.of_hosts(arguments.env or {}):
        raise HostsError("-x HOST:NAME: mpirun and jsrun give all ranks the same variables; leave HOST out")
    for option in _given(arguments, "remote_shell", "rendezvous"):
        raise HostsError(f"{option}: mpirun and jsrun reach hosts in their own ways; leave it out")
    if arguments.controller == JSRUN:
        for option in _given(arguments, *_PLACES, *_CHOICES):
            raise HostsError(f"{option}: jsrun takes the hosts of its LSF job; leave {option} out")
        for option in _given(arguments, "ranks", "output_filename"):
            raise HostsError(f"{option}: jsrun does not tell whose a line is; leave {option} out")


def _is_overruled(arguments: argparse.Namespace, name: str) -> bool:
    """Whether a file says it for a launcher in whose place the command line has chosen another one."""
    return arguments.origins.get("controller") == COMMAND_LINE != arguments.origins[name]


def _given(arguments: argparse.Namespace, *names: str) -> Iterator[str]:
    """Of these options those that have a value, as one types them."""
    for name in names:
        if getattr(arguments, name) is not None:
            yield "-H" if name == "hosts" else f"--{name.replace('_', '-')}"
