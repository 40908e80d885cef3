"""Where the ranks of one host meet that horovodrun has not started, without a secret from outside.

Rank 0 keeps the store, at an abstract Unix socket whose name follows from what the ranks of the job have in
common: the user, and the process of the launcher that has started them all. Nobody else can know less, so the
name is no secret; the kernel tells both ends which user is at the other one, and connections of other users
are refused.

Another user may listen at that name first. Then rank 0 takes one that begins alike and ends at random, and
the others look for it in the kernel's list of sockets.
"""

import hashlib
import os
import re
from collections.abc import Mapping

from ..errors import BootstrapError
from ..identity import Identity
from ..network import endpoints
from ..processes import launcher_process
from ..store.client import Finder

_SOCKETS = "/proc/net/unix"
_PREFIX = "unix:@"


class UnseenError(BootstrapError):
    """The process of the launcher is out of sight."""


def store_address(identity: Identity, environ: Mapping[str, str]) -> tuple[str, bytes]:
    """The store's address, and what proves to it that one may ask: known to every process of the user, equal
    on all ranks of a job on one host, and in no other job.

    Raises:
        UnseenError: nothing that tells the job from others can be seen from here.
    """
    try:
        launcher = launcher_process(identity.launcher)
    except OSError as error:
        raise UnseenError(
            f"rank {identity.rank} cannot see the process of {identity.launcher} that has started it "
            f"({error}): is each rank in a container of its own? Start all ranks of a host in one "
            "container, or start them by horovodrun"
        ) from error
    parts = (
        "horovod",
        os.geteuid(),
        identity.launcher,
        identity.size,
        *launcher,
        environ.get("TORCHELASTIC_RESTART_COUNT", ""),
    )
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return f"unix:@horovod-{hashlib.sha256(key).hexdigest()[:32]}", key


def name_of(address: str) -> str:
    """As a listener takes it."""
    return address.removeprefix(_PREFIX)


def another(address: str, reason: OSError) -> tuple[str, str]:
    """An address to take instead of ``address``, where another user listens, and who that is.

    Raises:
        BootstrapError: it is this user.
    """
    found = endpoints.listener(address)
    if found is not None and found[1] == os.geteuid():
        raise BootstrapError(
            f"rank 0 cannot listen at {address}: {reason.strerror}, by your process {found[0]}. Does it run "
            "as rank 0 of this job, too, or is it a child of one that has ended?"
        )
    # Who only holds the name, or lets those who knock wait, cannot be told.
    who = f"process {found[0]} of user {found[1]}" if found else "a process of another user"
    return f"{address}-{os.urandom(8).hex()}", who


def elsewhere(address: str) -> Finder:
    """Where rank 0 may listen, by what was met at ``address`` and the others."""

    def find(problem: Exception | None) -> str:
        if problem is None:
            return address
        return ",".join([*_alike(name_of(address)), address])

    return find


def _alike(name: str) -> list[str]:
    """The addresses that ``another`` has made. Others may listen at such ones; only this user is heard."""
    try:
        with open(_SOCKETS, encoding="utf-8", errors="replace") as file:
            found = re.findall(rf"@({name}-[0-9a-f]{{16}})$", file.read(), re.MULTILINE)
    except OSError:
        return []
    return [_PREFIX + each for each in dict.fromkeys(found)]
