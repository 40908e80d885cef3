"""Where hosts meet that nobody reaches by ssh: one leads the job, and the others dial it."""

import argparse
import math
from collections.abc import Callable, Sequence

from . import hosts
from .command_line import values
from .hosts import Host, HostsError

AUTO = "auto"


def split(text: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT", "[ADDRESS]:PORT" or ":PORT". Raises ValueError for what is none."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, such as [fd00::1]:29500")
    if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port[:9]) < 65536:
        raise ValueError(f"{text!r} is no address, such as node1:29500")
    return host, int(port)


def place(arguments: argparse.Namespace) -> tuple[list[Host], int]:
    """The hosts that the job may use, of which those that are to join have no name yet, and how many ranks it
    has. Completes ``joining``, how many are waited for.
    """
    _check(arguments)
    is_alike = arguments.nnodes is not None  # every host runs the same command
    arguments.joining = arguments.nnodes - 1 if is_alike else arguments.wait_for_hosts
    named = [] if arguments.hosts is None else hosts.parse(arguments.hosts)
    asked, per_node = arguments.num_proc, arguments.nproc_per_node
    others = arguments.joining + is_alike
    if per_node is None:
        left = asked - sum(host.slots for host in named)
        per_node = max(1, math.ceil(left / max(1, others)))
    found = [*named, *([Host("localhost", per_node)] if is_alike else [])]
    found += [Host(f"(host {number + 1} to join)", per_node) for number in range(arguments.joining)]
    return found, sum(host.slots for host in found) if asked is None else asked


def place_elastic(arguments: argparse.Namespace) -> list[Host]:
    """The hosts that an elastic job has before others join, with ``num_proc`` ranks at its start. Completes
    ``slots_per_host``, of hosts that do not say how many ranks they may run.
    """
    if arguments.host_discovery_script is not None:
        raise HostsError("--rendezvous and --host-discovery-script both say the hosts: give one of them")
    is_alike = arguments.nnodes is not None
    waited_for = arguments.nnodes if is_alike else arguments.wait_for_hosts
    per_node = arguments.slots_per_host or arguments.nproc_per_node
    if per_node is None and waited_for is None:
        raise HostsError("--rendezvous: say how many ranks a host may run that joins: --slots-per-host N")
    per_node = per_node or max(1, math.ceil(arguments.num_proc / waited_for))
    arguments.slots_per_host, arguments.joining = per_node, 0
    named = [] if arguments.hosts is None else hosts.parse(arguments.hosts)
    return [*named, *([Host("localhost", per_node)] if is_alike else [])]


def _check(arguments: argparse.Namespace) -> None:
    where = f"--rendezvous {arguments.rendezvous}"
    if (arguments.nnodes is None) == (arguments.wait_for_hosts is None):
        raise HostsError(
            f"{where}: say how many hosts meet there: --nnodes N where each of them runs this command, or "
            "--wait-for-hosts N where they run horovodrun-agent --join"
        )
    if arguments.nnodes is not None and (arguments.hosts or arguments.hostfile):
        raise HostsError(f"{where} --nnodes {arguments.nnodes}: leave -H and --hostfile out")
    if arguments.hostfile:
        raise HostsError(f"{where}: name further hosts with -H, not with --hostfile")
    if (arguments.nnodes or arguments.wait_for_hosts or 0) < 1:
        raise HostsError(f"{where}: at least 1 host is needed")
    if arguments.num_proc == values.AUTO:
        raise HostsError(f"{where}: -np auto cannot be known before all are there; give a number")
    if arguments.num_proc is None and (arguments.nproc_per_node is None or arguments.hosts):
        raise HostsError("-np is missing: say how many ranks to start in all, or --nproc-per-node N")


def wait_for_name(arguments: argparse.Namespace, seconds: float, say: Callable[[str], None]) -> None:
    """Until the name of --rendezvous leads somewhere: who leads the job, and where it listens, follow from
    that. The name of a pod does some seconds after the pod has begun, and not earlier in the pod itself.

    Args:
        arguments: the options, with ``rendezvous``.
        seconds: how long to wait.
        say: told why this takes a while.

    Raises:
        ValueError: it leads nowhere so far.
    """
    if arguments.node_rank not in (None, AUTO, 0):  # it dials, which waits for the name as for an answer
        return
    if host := split(arguments.rendezvous)[0]:
        _addresses(host, seconds, lambda error: say(f"waits until {host} leads to an address ({error})"))


def leads(arguments: argparse.Namespace) -> bool:
    """Whether the job is led from this host; the others serve it. Raises ValueError where that cannot be
    known.
    """
    if arguments.nnodes is None:
        return True
    if arguments.node_rank not in (None, AUTO):
        return bool(arguments.node_rank == 0)
    host, _ = split(arguments.rendezvous)
    if not host:
        raise ValueError(
            f"--rendezvous {arguments.rendezvous}: name the host that leads, as in node1:29500, or say on "
            "each host which one it is: --node-rank N"
        )
    return bool(own_addresses(host))


def own_addresses(host: str) -> list[str]:
    """Those of this host that ``host`` stands for. Raises ValueError for an unknown name."""
    from horovod.bootstrap.network import interfaces  # late, as all that a job needs

    own = [each.host for each in interfaces.addresses()]
    return [each for each in _addresses(host) if each in own or interfaces.is_loopback(each)]


def to_listen_at(host: str) -> list[str]:
    """The addresses of this host at which to wait for the others: those that ``host`` stands for. Where it
    stands for none of this host's, as that of a service or a router that leads here, and where nothing is
    said: all.
    """
    return (own_addresses(host) if host else []) or ["0.0.0.0", "::"]


def _addresses(
    host: str, seconds: float = 0.0, say: Callable[[OSError], object] = lambda error: None
) -> list[str]:
    from horovod.bootstrap.network import names  # only here: the help is to be quick

    try:
        return names.addresses(host, seconds, say)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--rendezvous {host}: this name leads to no address here ({error})") from None


def in_order(joined: Sequence[tuple[int | None, str]]) -> list[int]:
    """The positions of hosts, by the place that each has been given, and then by name."""
    return sorted(range(len(joined)), key=lambda at: (_or_last(joined[at][0]), joined[at][1]))


def _or_last(place: int | None) -> float:
    return math.inf if place is None else place
