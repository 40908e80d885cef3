"""Entry point of the console script ``horovodrun-agent``: the launcher's hand on a host."""

import argparse
import os
import sys
from collections.abc import Mapping

from horovod.bootstrap import descriptors

from . import meeting, parent, timeouts
from .command_line import values

_USAGE_STATUS = 2
_START_SECONDS = 600.0


def run_commandline() -> None:
    """Serves one job, of the launcher at ``--join``, or of the one whose remote shell has started this."""
    descriptors.open_standard_streams()
    arguments = _parser().parse_args()
    if arguments.join is None:
        from .nodes import agent

        if sys.stdin is not None and sys.stdin.isatty():
            _parser().error("horovodrun starts this on other hosts; to join a job, give --join HOST:PORT")
        agent.main()
    if arguments.end_with is not None:
        parent.end_with(arguments.end_with)
    where = arguments.join, arguments.name, arguments.slots, arguments.place
    os._exit(join(*where, arguments.start_timeout))


def join(
    address: str,
    name: str | None,
    slots: int | None,
    place: int | None,
    seconds: float | None = None,
    settings: Mapping[str, str] = os.environ,
) -> int:
    """Serves the launcher at an address, and returns the status of its job.

    Args:
        address: "HOST:PORT".
        name: of this host in the job, that of the system by default.
        slots: how many ranks it may run; None: as many as the launcher says.
        place: where the host stands among the others.
        seconds: how long to dial until the launcher is there; None: as long as ``settings`` say.
        settings: variables with the limits of time, as they are where the launcher says nothing of them.
    """
    from .launchers.welcome import common_secret
    from .nodes import agent
    from .nodes.dial_in import DialIn

    try:
        target, secret = meeting.split(address), common_secret(os.environ)
        name = name or os.environ.get("HOROVOD_HOSTNAME") or os.uname().nodename
        seconds = (timeouts.start_seconds(settings) or _START_SECONDS) if seconds is None else seconds
        patience = timeouts.lost_seconds(settings)
        own = name, slots, place, seconds, patience
        return agent.join(lambda loop: DialIn(loop, target, secret, *own, agent.tell))
    except ValueError as error:
        agent.complain(str(error))
        return _USAGE_STATUS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun-agent",
        description="Starts ranks on this host for a horovodrun elsewhere, and ends with its job's status.",
        allow_abbrev=False,
    )
    where = "dial the horovodrun that waits there (--rendezvous, --wait-for-hosts)"
    parser.add_argument("--join", metavar="HOST:PORT", help=where)
    name = "what this host is called in the job (its own name)"
    parser.add_argument("--name", metavar="NAME", help=name)
    slots = "how many ranks this host may run (as many as horovodrun says)"
    parser.add_argument("--slots", type=values.integer, metavar="N", help=slots)
    place = "where this host stands among the others, whose ranks are numbered in this order (by name)"
    parser.add_argument("--place", type=values.integer, metavar="N", help=place)
    seconds = f"try for S seconds until horovodrun is there ({_START_SECONDS:g})"
    parser.add_argument("--start-timeout", type=values.seconds, metavar="S", help=seconds)
    pid = "leave the job, as on SIGTERM, when the parent process, PID, ends"
    parser.add_argument("--end-with", type=values.integer, metavar="PID", help=pid)
    return parser


if __name__ == "__main__":
    run_commandline()
