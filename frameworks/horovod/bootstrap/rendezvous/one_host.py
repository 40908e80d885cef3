"""Where the ranks of one host meet that horovodrun has not started, without a secret from outside.

Rank 0 keeps the store, at an abstract Unix socket whose name follows from what the ranks of the job have in
common: the user, and the process of the launcher that has started them all. Nobody else can know less, so the
name is no secret; the kernel tells both ends which user is at the other one, and connections of other users
are refused.
"""

import hashlib
import os
from collections.abc import Mapping

from ..identity import Identity
from ..sources import source_of

_START_TIME = 22 - 3  # field of /proc/PID/stat, less those up to the program's name


def store_address(identity: Identity, environ: Mapping[str, str]) -> tuple[str, bytes]:
    """The store's address, and what proves to it that one may ask: known to every process of the user, equal
    on all ranks of a job on one host, and in no other job.
    """
    variable = source_of(identity.launcher).rank
    parts = (
        "horovod",
        os.geteuid(),
        identity.launcher,
        identity.size,
        *_launcher_process(variable),
        environ.get("TORCHELASTIC_RESTART_COUNT", ""),
    )
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return f"unix:@horovod-{hashlib.sha256(key).hexdigest()[:32]}", key


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
