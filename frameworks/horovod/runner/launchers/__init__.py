"""How the ranks of a job are started, one module per way; here is which one a job takes."""

import os
from collections.abc import Sequence

from ..hosts import Host

_THIS_HOST = ("localhost", "127.0.0.1", "::1")


def choose(hosts: Sequence[Host]) -> str:
    """The module of this package whose ``launch`` starts the ranks on ``hosts``."""
    return "direct"


def united(hosts: Sequence[Host]) -> list[Host]:
    """``hosts`` with all names of this one under the first of them, which has the slots of all."""
    names = [host.name for host in hosts if is_this_host(host.name)]
    slots: dict[str, int] = {}
    for host in hosts:
        name = names[0] if host.name in names else host.name
        slots[name] = slots.get(name, 0) + host.slots
    return [Host(name, count) for name, count in slots.items()]


def is_this_host(name: str) -> bool:
    """Whether a host that is called so is the one that this process runs on."""
    return name.lower() in (*_THIS_HOST, os.uname().nodename.lower())
