"""The settings of a start: how the ranks reach each other, how long they wait for each other, and what
horovodrun tells them of itself.
"""

from collections.abc import Mapping

from . import variables
from .sources import is_within_a_rank
from .text import shown

START_TIMEOUT_VARIABLE = "HOROVOD_START_TIMEOUT"
STORE_VARIABLE = "HOROVOD_STORE_ADDR"
RESTART_VARIABLE = "HOROVOD_RESTART"
ENCRYPT_VARIABLE = "HOROVOD_ENCRYPT"
HOST_TIMEOUT_VARIABLE = "HOROVOD_HOST_TIMEOUT"
PREEMPTION_VARIABLE = "HOROVOD_PREEMPTION_SIGNAL"
HOST_SECONDS = 30.0
"""For so long a connection between the launcher and another host may be away, by default."""
RANK_SECONDS = 30.0
"""For so long ranks wait for each other at the start, by default."""
ADDRESS_VARIABLE, WORKER_VARIABLE = "HOROVOD_ELASTIC_ADDR", "HOROVOD_ELASTIC_WORKER"
IDENTITY = (
    *(f"HOROVOD_{scope}{extent}" for scope in ("", "LOCAL_", "CROSS_") for extent in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", STORE_VARIABLE, "HOROVOD_JOB_ID", RESTART_VARIABLE),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
"""Who a process is in its job, and the way to its launcher: of one rank, and of one job."""
# What all ranks must have alike, by the defaults of the core.
_SAME_EVERYWHERE = {
    "HOROVOD_SHM_CHUNK_BYTES": 131072,
    "HOROVOD_SHM_STAGING_SLOTS": 4,
    "HOROVOD_DATA_LINKS": 1,
}
_TRANSPORTS = ("auto", "shm", "tcp")


def wiring(environment: Mapping[str, str]) -> str:
    """Raises ValueError for what is none."""
    name = environment.get("HOROVOD_TRANSPORT") or "auto"
    if name not in _TRANSPORTS:
        raise ValueError(f"HOROVOD_TRANSPORT='{shown(name)}': expected one of {', '.join(_TRANSPORTS)}")
    return name


def staging(environment: Mapping[str, str]) -> str:
    """How this rank stages tensors in shared memory, over how many links they go elsewhere, and whether it
    encrypts them there, for people too. Raises ValueError for a wrong value.
    """
    from horovod import _core

    for variable in (*_SAME_EVERYWHERE, ENCRYPT_VARIABLE):
        _core.check_setting(variable, environment.get(variable, ""))
    told = [f"{name}={int(environment.get(name) or default)}" for name, default in _SAME_EVERYWHERE.items()]
    encrypts = variables.flag(ENCRYPT_VARIABLE, environ=environment)
    return ", ".join([*told, f"{ENCRYPT_VARIABLE}={encrypts:d}"])


def start_timeout(environment: Mapping[str, str]) -> float:
    """In seconds. Raises ValueError for what is no such number."""
    return variables.seconds(START_TIMEOUT_VARIABLE, environment, RANK_SECONDS)


def host_timeout(environment: Mapping[str, str]) -> float:
    """Seconds for which the launcher may be silent; of a value that is no number, the launcher says so."""
    return variables.usable_seconds(HOST_TIMEOUT_VARIABLE, environment, HOST_SECONDS)


def is_elastic(environment: Mapping[str, str]) -> bool:
    """Whether a launcher of elastic jobs has started this process."""
    is_told = WORKER_VARIABLE in environment and ADDRESS_VARIABLE in environment
    return is_told and not is_within_a_rank(environment)
