"""How the ranks of a job meet that horovodrun has not started: at a store in rank 0.

On one host they find it without help. On several, the secret is that of HOROVOD_SECRET_FILE, and where the
store is comes from the launcher: over what it lets its ranks tell each other (see carriers), or by the name
of rank 0's host and a port that follows from the secret. What can carry the address can carry a secret, too.
What the user gives serves many jobs, so every key is derived from it: by the job that asks, and, for what the
ranks prove to each other, by a random number of rank 0.
"""

import secrets
import socket
from collections.abc import Mapping
from typing import Any

from .. import controller, libraries
from ..errors import BootstrapError
from ..identity import Identity
from ..network import endpoints, interfaces
from ..network.interfaces import Network
from ..secret import FILE_VARIABLE, SECRET_BYTES
from ..sources import OPEN_MPI, source_of
from ..store.server import StoreServer
from ..text import log, shown
from . import one_host
from .carriers import Carrier, carrier_of
from .first_host import derived_ports, first_host, ways_to_host
from .rendezvous import Offer, Rendezvous, derive

_MOST_CARRIED = 14  # addresses: those of launchers that carry the least take a thousand bytes


def find_rendezvous(
    identity: Identity,
    environ: Mapping[str, str],
    network: Network,
    own: bytes | None,
    timeout: float,
    carrier: Carrier | None = None,
) -> Rendezvous:
    """Finds out where the store is; in rank 0, makes it.

    Args:
        identity: of this process.
        environ: its environment.
        network: what the user says of the network.
        own: the secret that the user gives; None: none.
        timeout: seconds until the launcher must have answered, or the name of a host have an address.
        carrier: what the program gives for it; None: what the launcher offers.

    Raises:
        BootstrapError: there is no way to meet; the text says what to provide.
    """
    rendezvous = Rendezvous(identity, _job(identity, environ), own, own)
    unseen: BootstrapError | None = None
    if carrier is None and identity.local_size == identity.size:
        try:
            _on_one_host(rendezvous, environ)
            return rendezvous
        except one_host.UnseenError as error:  # from within a container: as on several hosts
            unseen = error
    rendezvous.carrier = carrier or carrier_of(identity, environ, timeout)
    if rendezvous.carrier:
        _by_carrier(rendezvous, rendezvous.carrier, environ, network)
    elif unseen is not None and (own is None or not first_host(identity, environ)):
        raise unseen
    elif own is None:
        raise BootstrapError(_how_to_give_a_secret(identity, environ))
    else:
        _by_name(rendezvous, own, environ, network, timeout)
    return rendezvous


def _job(identity: Identity, environ: Mapping[str, str]) -> bytes:
    """What tells this job from others that share its secret."""
    names = (*source_of(identity.launcher).job, "HOROVOD_JOB_ID")
    parts = (identity.launcher, str(identity.size), *(environ.get(name, "") for name in names))
    return "\0".join(parts).encode(errors="replace")


def _on_one_host(rendezvous: Rendezvous, environ: Mapping[str, str]) -> None:
    rendezvous.address, rendezvous.key = one_host.store_address(rendezvous.identity, environ)
    if rendezvous.root is not None:
        rendezvous.key = derive(rendezvous.root, b"store", rendezvous.key)
    if rendezvous.identity.rank == 0:
        try:
            rendezvous.server = _server(rendezvous, name=one_host.name_of(rendezvous.address))
        except OSError as error:
            rendezvous.address, who = one_host.another(rendezvous.address, error)
            _warn(f"{who} listens at the name of this job's sockets; the ranks meet at another one")
            rendezvous.server = _server(rendezvous, name=one_host.name_of(rendezvous.address))
        rendezvous.server.start()


def _by_carrier(
    rendezvous: Rendezvous, carrier: Carrier, environ: Mapping[str, str], network: Network
) -> None:
    rendezvous.way = f"{carrier.name} says where, and the secret is {_origin_of_secret(rendezvous)}"
    if rendezvous.identity.rank != 0:
        return
    carried = None
    if rendezvous.root is None:
        rendezvous.root = carried = secrets.token_bytes(SECRET_BYTES)
        if carrier.is_public:
            _warn(
                f"this job's secret is in {carrier.name}, where anybody who reaches that port can read it "
                f"and join the job. Give one to all hosts: {how_to_make_a_secret()}"
            )
    rendezvous.key = derive(rendezvous.root, b"store", rendezvous.job)
    if rendezvous.identity.local_size == rendezvous.identity.size:
        _serve_host(rendezvous)
    else:
        _serve(rendezvous, environ, network, network.ports)
    carrier.tell(Offer(rendezvous.address, carried).encode())


def _origin_of_secret(rendezvous: Rendezvous) -> str:
    return "there, too" if rendezvous.root is None else f"that of {FILE_VARIABLE}"


def _by_name(
    rendezvous: Rendezvous, own: bytes, environ: Mapping[str, str], network: Network, timeout: float
) -> None:
    identity = rendezvous.identity
    host = first_host(identity, environ)
    if not host:
        raise BootstrapError(
            f"{identity.launcher} started {identity.size} processes on several hosts and does not say on "
            "which one rank 0 is: set MASTER_ADDR to the name or address of that host, on all ranks"
        )
    rendezvous.master = host
    rendezvous.key = derive(own, b"store", rendezvous.job)
    ports = derived_ports(derive(own, b"port", rendezvous.job), network.ports)
    rendezvous.way = f"rank 0 is on {shown(host)}, and the secret is that of {FILE_VARIABLE}"
    if identity.rank == 0:
        _serve(rendezvous, environ, network, ports)
    else:
        rendezvous.address = ",".join(ways_to_host(host, ports, timeout))


def _serve(rendezvous: Rendezvous, environ: Mapping[str, str], network: Network, ports: range | None) -> None:
    """Rank 0 listens at the addresses of its host by which others may reach it."""
    existing = [name for _, name in socket.if_nameindex()]
    routes = [interfaces.route_to(environ.get("MASTER_ADDR", "")), *interfaces.default_routes()]
    hosts = interfaces.chosen(network, interfaces.addresses(), existing, routes)
    if rendezvous.carrier:
        last = hosts[_MOST_CARRIED:]
        hosts = [*hosts[:_MOST_CARRIED], *filter(interfaces.is_loopback, last)]
    elif endpoints.LOOPBACK not in hosts:
        # The name of this host may stand for loopback here, and its other ranks know no more than the name.
        hosts.append(endpoints.LOOPBACK)
    if rendezvous.master == endpoints.LOOPBACK:
        rendezvous.master = hosts[0]
    rendezvous.server = _server(rendezvous, "tcp", hosts=hosts, ports=ports)
    rendezvous.address = rendezvous.server.address
    rendezvous.server.start()


def _serve_host(rendezvous: Rendezvous) -> None:
    """Where all are on one host that others tell apart by no name of the job's."""
    rendezvous.server = _server(rendezvous)
    rendezvous.address = rendezvous.server.address
    rendezvous.server.start()


def _server(rendezvous: Rendezvous, kind: str = "unix", **options: Any) -> StoreServer:
    size = rendezvous.identity.size
    return StoreServer(rendezvous.key, size, kind, say=_warn, of_one_program=True, **options)


def how_to_make_a_secret() -> str:
    """Commands for the user."""
    return (
        '(umask 077; python -c "import secrets; print(secrets.token_hex(32))" > ~/.horovod-secret), on a '
        f"file system that all hosts see, or copied to each; then {FILE_VARIABLE}=$HOME/.horovod-secret in "
        "the environment of all ranks"
    )


def _how_to_give_a_secret(identity: Identity, environ: Mapping[str, str]) -> str:
    address = "" if first_host(identity, environ) else ", and the host of rank 0 in MASTER_ADDR"
    return (
        f"{identity.launcher} started {identity.size} processes on several hosts, {identity.local_size} of "
        f"them on {shown(identity.hostname)}, and offers no way to give them a secret by which they know "
        f"each other. Make one: {how_to_make_a_secret()}{address}{_or_by_mpi(identity)}"
    )


def _or_by_mpi(identity: Identity) -> str:
    if identity.launcher != OPEN_MPI or not libraries.built("mpi"):
        return ""
    return f". Or set {controller.VARIABLE}=mpi on all ranks: MPI carries both then"


def _warn(text: str) -> None:
    log("warning", 0, text)
