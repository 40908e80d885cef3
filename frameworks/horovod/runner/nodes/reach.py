"""Brings up the agents of all other hosts, and finds the addresses by which hosts reach each other."""

import time
from collections.abc import Sequence

from horovod.bootstrap import endpoints, interfaces

from ..ending import ENDING_SIGNALS
from ..loop import Loop
from .remote import RemoteNode

_FURTHER_SECONDS = 0.5


class ReachError(Exception):
    """A host cannot be used; the text has a line for each. ``status`` is that of the job."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def greet(loop: Loop, nodes: Sequence[RemoteNode], seconds: float) -> None:
    """Waits until the agents of ``nodes`` are up, at most ``seconds``.

    Raises:
        ReachError: one cannot be brought up, or a signal has ended the waiting.
    """
    taken: list[int] = []
    loop.on_signal = taken.append
    deadline = time.monotonic() + seconds
    while any(node.greeting is None for node in nodes):
        loop.step(deadline, nodes)
        if ending := [number for number in taken if number in ENDING_SIGNALS]:
            raise ReachError("ended by a signal while hosts were being reached", 128 + ending[0])
        if any(node.failure is not None for node in nodes):  # of others it is known soon, too
            deadline = min(deadline, time.monotonic() + _FURTHER_SECONDS)
        if time.monotonic() >= deadline or all(node.greeting or node.failure for node in nodes):
            break
    failures = [node.failure for node in nodes if node.failure is not None]
    late = ", ".join(node.host for node in nodes if node.greeting is None and node.failure is None)
    if late and not failures:
        failures = [f"{late}: no agent came up within {seconds:g} s (--start-timeout)"]
    if failures:
        raise ReachError("\n".join(failures))


def own_addresses(nodes: Sequence[RemoteNode], network: interfaces.Network) -> list[str]:
    """The addresses of this host at which the ranks on ``nodes`` reach it: those of the interfaces that the
    user has chosen, or those by which ssh has come to them.
    """
    found = interfaces.addresses()
    if network.interfaces:
        return interfaces.chosen(network, found, sorted({each.interface for each in found}), "")
    here = [each.host for each in found]
    seen = [node.greeting.launcher for node in nodes if node.greeting and node.greeting.launcher]
    reached = [host for host in dict.fromkeys(seen) if host in here]
    # Behind a translation of addresses nothing is known: one of all may be right.
    return reached or [host for host in here if not interfaces.is_loopback(host)] or [endpoints.LOOPBACK]
