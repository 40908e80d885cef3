"""Brings up the agents of all other hosts, and finds the addresses by which hosts reach each other."""

import time
from collections.abc import Sequence

from horovod.bootstrap.network import endpoints, interfaces

from ..ending import ENDING_SIGNALS
from . import machine, tree
from .loop import Loop
from .remote import RemoteNode
from .way import Way

_USAGE_STATUS = 2
_FURTHER_SECONDS = 0.5
_GOODBYE_SECONDS = 1.0


class ReachError(Exception):
    """A host cannot be used; the text has a line for each. ``status`` is that of the job."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def greet(loop: Loop, nodes: Sequence[RemoteNode], seconds: float, fan_out: int = 0) -> None:
    """Brings up the agents of ``nodes``, a few at a time, and waits until they are there, at most
    ``seconds``. With more than ``fan_out`` nodes, agents that are up dial others; 0: they never do.

    Raises:
        ReachError: one cannot be brought up, or a signal has ended the waiting.
    """
    taken: list[int] = []
    loop.on_signal = taken.append
    deadline = time.monotonic() + seconds
    while not all(node.greeting or node.failure for node in nodes) and time.monotonic() < deadline:
        _dial(nodes, fan_out or len(nodes))
        loop.step(deadline, nodes)
        if ending := [number for number in taken if number in ENDING_SIGNALS]:
            raise ReachError("ended by a signal while hosts were being reached", 128 + ending[0])
        if any(node.failure is not None for node in nodes):  # of others it is known soon, too
            deadline = min(deadline, time.monotonic() + _FURTHER_SECONDS)
    failures = [node.failure for node in nodes if node.failure is not None]
    if failures := failures or _delays(nodes, seconds):
        raise ReachError("\n".join(failures))


def _dial(nodes: Sequence[RemoteNode], fan_out: int) -> None:
    """Dials those whose turn it is."""
    now = time.monotonic()
    waiting = [node for node in nodes if node.wants_to_dial(now)]
    depth = tree.depth_for(len(nodes), fan_out)
    relays, diallers = _diallers([node.route for node in nodes], now) if waiting else ([], [])
    has_room = True  # where nobody has, all others need not be asked for each host: they may be thousands
    for node in waiting:
        only_here = bool(node.route.refusal)
        if not (has_room or only_here):
            continue
        chosen = tree.choose(diallers[:1] if only_here else diallers, fan_out, 0 if only_here else depth)
        if chosen is None:
            has_room &= only_here
            continue
        try:
            node.dial(relays[chosen])
        except FileNotFoundError as error:
            what = f"there is no program {error.filename} on this host"
            raise ReachError(f"{node.host} cannot be reached: {what}") from None
        diallers[chosen].hosts += 1
        diallers[chosen].logging_in += 1
        relays.append(node.route)
        diallers.append(tree.Dialler(diallers[chosen].depth + 1, is_up=False))


def _diallers(routes: Sequence[Way], now: float) -> tuple[list[Way | None], list[tree.Dialler]]:
    """Who may dial further hosts: the launcher (None), and hosts that are dialled; how busy they are."""
    found: dict[Way | None, tree.Dialler] = {None: tree.Dialler(0)}
    dialled = [route for route in routes if route.is_dialled]
    for route in dialled:
        found[route] = tree.Dialler(route.depth, is_up=route.is_greeted, is_able=route.is_able)
    for route in dialled:
        found[route.relay].hosts += 1
        found[route.relay].logging_in += route.is_logging_in(now)
    return list(found), list(found.values())


def ways(nodes: Sequence[RemoteNode]) -> list[str]:
    """How hosts were reached: a line for each that has dialled some, and for each that a relay could not."""
    found: dict[str, list[str]] = {}
    for route in [node.route for node in nodes]:
        way = "directly" if route.relay is None else f"by way of {route.relay.host}"
        found.setdefault(way, []).append(route.host)
    lines = [f"reached {way}: {', '.join(hosts)}" for way, hosts in found.items()]
    refusals = [node.route.refusal for node in nodes if node.route.refusal]
    return lines + [f"{refusal}; it was dialled directly" for refusal in refusals]


def _delays(nodes: Sequence[RemoteNode], seconds: float) -> list[str]:
    """A line for each reason why hosts are late."""
    late: dict[str, list[str]] = {}
    for node in nodes:
        if node.greeting is None:
            late.setdefault(node.route.delay, []).append(node.host)
    limit = f"no agent came up within {seconds:g} s (--start-timeout)"
    return [f"{', '.join(hosts)}: {limit}{why and f'; {why}'}" for why, hosts in late.items()]


def check_machines(nodes: Sequence[RemoteNode], own: str | None) -> None:
    """Makes sure that no two hosts are one machine under two names. ``own``: what this host is called in the
    job; None: it has no ranks. Those that have dialled may be one, see ``machine.together``.

    Raises:
        ReachError: two are.
    """
    here = machine.identity()
    places = [] if own is None else [machine.Place(own, here, None, is_here=True)]
    dialled: set[str | None] = set()
    for node in nodes:
        if (told := node.greeting) is not None:
            if node.route.addresses is not None:
                if told.machine in dialled:
                    continue
                dialled.add(told.machine)
            is_here = told.machine == here and told.address is not None and told.address == told.launcher
            places.append(machine.Place(node.host, told.machine, told.address, is_here))
    lines = [
        f"{' and '.join(names)} are one host: give it one name, with the slots of both"
        for names in machine.twins(places)
    ]
    if lines:
        raise ReachError("\n".join(lines), _USAGE_STATUS)


def part(loop: Loop, nodes: Sequence[RemoteNode], status: int = 0) -> None:
    """Lets the agents go, all at the same time; ``status`` is that of the job."""
    for node in nodes:
        node.leave(status)
    end = time.monotonic() + _GOODBYE_SECONDS
    while time.monotonic() < end and not all(node.has_left for node in nodes):
        loop.step(end, [])
    for node in nodes:
        node.close()


def own_addresses(nodes: Sequence[RemoteNode], network: interfaces.Network) -> list[str]:
    """The addresses of this host at which the ranks on ``nodes`` reach it: those of the interfaces that the
    user has chosen, or those by which ssh has come to them.
    """
    found = interfaces.addresses()
    if network.interfaces:
        return interfaces.chosen(network, found, sorted({each.interface for each in found}), [])
    here = [each.host for each in found]
    seen = [node.greeting.launcher for node in nodes if node.greeting and node.greeting.launcher]
    reached = [host for host in dict.fromkeys(seen) if host in here]
    # Behind a translation of addresses nothing is known: one of all may be right.
    return reached or [host for host in here if not interfaces.is_loopback(host)] or [endpoints.LOOPBACK]
