"""How the ranks of a job meet that horovodrun has not started: on one host, without a secret from outside.

Rank 0 keeps the store, at an abstract Unix socket whose name follows from what the ranks of the job have in
common: the user, and the process of the launcher that has started them all. Nobody else can know less, so the
name is no secret; the kernel tells both ends which user is at the other one, and connections of other users
are refused. What the ranks prove to each other afterwards is a random secret that rank 0 hands out there.
"""

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from . import endpoints
from .errors import BootstrapError
from .identity import Identity
from .secret import SECRET_BYTES
from .sources import SOURCES
from .store import StoreServer
from .store_client import StoreClient
from .text import log

_SECRET_KEY, _PORT_KEY = "job/secret", "job/master_port"
_START_TIME = 22 - 3  # field of /proc/PID/stat, less those up to the program's name


@dataclass(frozen=True)
class Meeting:
    """Where the store is, and what proves to it that one may ask: known to every process of the user."""

    address: str
    key: bytes


def meeting_of(identity: Identity, environ: Mapping[str, str]) -> Meeting:
    """Equal on all ranks of a job on one host, and in no other job."""
    variable = next(source.rank for source in SOURCES if source.launcher == identity.launcher)
    parts = (
        "horovod",
        os.geteuid(),
        identity.launcher,
        identity.size,
        *_launcher_process(variable),
        environ.get("TORCHELASTIC_RESTART_COUNT", ""),
    )
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return Meeting(f"unix:@horovod-{hashlib.sha256(key).hexdigest()[:32]}", key)


def serve(meeting: Meeting, size: int) -> StoreServer:
    """The store of rank 0, which lives as long as its process."""
    name = meeting.address.removeprefix("unix:@")
    try:
        server = StoreServer(meeting.key, size, say=_warn, name=name)
    except OSError as error:
        raise BootstrapError(
            f"rank 0 cannot listen at {meeting.address}: {error.strerror}. Does another process of this job "
            "run as rank 0, or a child of one that has ended?"
        ) from None
    server.start()
    return server


def _warn(text: str) -> None:
    log("warning", 0, text)


def exchange_secret(store: StoreClient, rank: int, timeout: float) -> bytes:
    """The job's secret, which rank 0 makes."""
    if rank == 0:
        secret = secrets.token_bytes(SECRET_BYTES)
        store.set(_SECRET_KEY, secret)
        return secret
    return store.get(_SECRET_KEY, timeout)


def exchange_port(store: StoreClient, rank: int, known: str | None, timeout: float) -> str:
    """The MASTER_PORT of rank 0, or one that is free there: for programs that make connections of their
    own.
    """
    if rank != 0:
        return store.get(_PORT_KEY, timeout).decode()
    port = known or str(endpoints.free_port())
    store.set(_PORT_KEY, port.encode())
    return port


def _launcher_process(variable: str) -> tuple[int, str]:
    """(pid, start time) of the nearest ancestor that is no rank itself, as wrappers of ranks are: it has not
    ``variable`` in its environment, or another user owns it.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_rank = any(
                    entry.startswith(variable.encode() + b"=") for entry in file.read().split(b"\0")
                )
        except OSError:
            break
        if not is_rank:
            break
        pid = int(_stat(pid)[1])
    return pid, _stat(pid)[_START_TIME]


def _stat(pid: int) -> list[str]:
    """The fields behind the program's name: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
