"""What a start of the ranks tells, for people: who they are, and how they reach each other."""

import os
from typing import TYPE_CHECKING

from .identity import Identity
from .text import escaped, log

if TYPE_CHECKING:
    from .mesh.linker import Link
    from .mesh.mesh import Mesh


def tell(identity: Identity, made: tuple[str, str], seconds: float, starts: int) -> None:
    """Says that the ranks have started; ``made``: on how many hosts, and how they reach each other."""
    ranks = "1 rank" if identity.size == 1 else f"{identity.size} ranks"
    hosts, way = made
    host = escaped(os.uname().nodename)
    host = host if hosts == "1 host" else f"rank 0 on {host}"
    generation = f", start {starts} of this process" if starts > 1 else ""
    log("info", 0, f"{ranks} on {hosts} ({host}), {way}, started in {seconds:.2f} s{generation}")


def tell_links(identity: Identity, links: "list[Link]") -> None:
    """Says, for who debugs, which links this rank has."""
    from .network.auth import Role

    peers: dict[str, list[str]] = {}
    for link in links:
        peers.setdefault(Role(link[2]).name.lower(), []).append(str(link[1]))
    made = "; ".join(f"{role} to rank {', '.join(ranks)}" for role, ranks in peers.items())
    where = f"local rank {identity.local_rank} of {identity.local_size}, pid {os.getpid()}"
    log("debug", identity.rank, f"{where}; launcher: {identity.launcher}; links: {made}")


def way(mesh: "Mesh", asked: str) -> str:
    """How the ranks reach each other, and why so; ``asked``: by HOROVOD_TRANSPORT."""
    return f"{_way(mesh)} ({_reason(asked, mesh.wiring)})"


def _way(mesh: "Mesh") -> str:
    if not mesh.hosts:
        return "over shared memory" if mesh.wiring == "shm" else "over TCP on the loopback interface"
    return "over shared memory within a host and TCP between hosts" if mesh.wiring == "shm" else "over TCP"


def _reason(asked: str, made: str) -> str:
    if asked != "auto":
        return f"HOROVOD_TRANSPORT={asked}"
    return "all ranks can share it" if made == "shm" else "the system refuses shared memory"
