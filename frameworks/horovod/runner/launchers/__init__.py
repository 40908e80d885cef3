"""How the ranks of a job are started, one module per way; here is which one a job takes."""

import os
from collections.abc import Sequence

from ..hosts import Host, HostsError

_THIS_HOST = ("localhost", "127.0.0.1", "::1")


def choose(hosts: Sequence[Host]) -> str:
    """The module of this package whose ``launch`` starts the ranks on ``hosts``.

    Raises:
        HostsError: no way leads to one of them.
    """
    for host in hosts:
        if not is_this_host(host.name):
            raise HostsError(f"{host.name} is another host; this version starts ranks on this host only")
    return "direct"


def is_this_host(name: str) -> bool:
    """Whether a host that is called so is the one that this process runs on."""
    return name.lower() in (*_THIS_HOST, os.uname().nodename.lower())
