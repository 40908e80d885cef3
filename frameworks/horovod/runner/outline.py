"""The job in one line, as it is told at its start."""

import os
from collections.abc import Mapping, Sequence

from horovod.bootstrap.shared_memory import shared_memory_refusal
from horovod.bootstrap.start_settings import ENCRYPT_VARIABLE
from horovod.bootstrap.text import escaped
from horovod.bootstrap.variables import flag

from . import limits
from .hosts import Placement, by_host
from .nodes.rank_process import threads

_SHARED = "shared memory"
_HOSTS_LISTED = 8


def outline(placements: Sequence[Placement], environment: Mapping[str, str]) -> str:
    """Ranks, hosts, transport and threads, the last two as the environment has them."""
    wanted = environment.get("HOROVOD_TRANSPORT") or "auto"
    refusal = shared_memory_refusal(placements[0].local_size) if wanted == "auto" else None
    tcp = "encrypted TCP" if flag(ENCRYPT_VARIABLE, environ=environment) else "TCP"
    known = {"auto": _SHARED, "shm": _SHARED, "tcp": tcp}
    transport = f"{tcp} (no shared memory: {refusal})" if refusal else known.get(wanted, wanted)
    hosts = by_host(placements)
    where = f"{os.uname().nodename} ({_many(limits.usable_cores(), 'core')})"
    if len(hosts) > 1:
        where = f"{len(hosts)} hosts ({_listed(hosts)})"
        transport += "" if wanted == "tcp" else f" within a host and {tcp} between hosts"
    count = environment.get("OMP_NUM_THREADS", threads(placements[0].local_size))
    return escaped(
        f"{_many(len(placements), 'rank')} on {where}, over {transport}, {_many(count, 'thread')} each"
    )


def elastic_outline(ranks: int, fewest: int, spares: int) -> str:
    """How an elastic job begins, whose hosts may change, and how far it may shrink."""
    beside = f" and {_many(spares, 'spare')}" if spares else ""
    return f"elastic job of {_many(ranks, 'rank')}{beside}; it goes on with {_many(fewest, 'rank')} or more"


def _listed(hosts: Mapping[str, Sequence[Placement]]) -> str:
    names = [f"{len(places)} on {host}" for host, places in hosts.items()]
    return ", ".join(names[:_HOSTS_LISTED]) + (", ..." if len(names) > _HOSTS_LISTED else "")


def _many(count: int | str, noun: str) -> str:
    return f"{count} {noun}{'' if str(count) == '1' else 's'}"
