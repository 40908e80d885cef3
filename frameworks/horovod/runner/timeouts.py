"""How long a launcher waits, and for what, where an option or the environment says it."""

from collections.abc import Mapping

from horovod.bootstrap.start_settings import HOST_SECONDS, HOST_TIMEOUT_VARIABLE, START_TIMEOUT_VARIABLE
from horovod.bootstrap.variables import seconds, usable_seconds

ELASTIC_VARIABLE = "HOROVOD_ELASTIC_TIMEOUT"
START_SECONDS = 30.0
"""What hosts have to come that are reached, if the user says nothing else."""
JOIN_SECONDS = 600.0
"""What those have that come by themselves."""
ELASTIC_SECONDS = 600.0


def lost_seconds(environ: Mapping[str, str], default: float = HOST_SECONDS) -> float:
    """For how long the connection to a host may be away. Raises ValueError for what is no number."""
    return seconds(HOST_TIMEOUT_VARIABLE, environ, default)


def elastic_seconds(environ: Mapping[str, str]) -> float:
    """For how long an elastic job may be without enough ranks. Raises ValueError for what is no number."""
    return seconds(ELASTIC_VARIABLE, environ, ELASTIC_SECONDS)


def start_seconds(environ: Mapping[str, str]) -> float | None:
    """What hosts have to come; None: nobody has said it. What is no such number has no effect, and the ranks
    say so.
    """
    return usable_seconds(START_TIMEOUT_VARIABLE, environ, 0.0) or None
