"""Where the ranks of one host meet that horovodrun has not started, without a secret from outside.

Rank 0 keeps the store, at an abstract Unix socket whose name follows from what the ranks of the job have in
common: the user, and the process of the launcher that has started them all. Nobody else can know less, so the
name is no secret; the kernel tells both ends which user is at the other one, and connections of other users
are refused.
"""

import hashlib
import os
from collections.abc import Mapping

from ..errors import BootstrapError
from ..identity import Identity
from ..processes import launcher_process


def store_address(identity: Identity, environ: Mapping[str, str]) -> tuple[str, bytes]:
    """The store's address, and what proves to it that one may ask: known to every process of the user, equal
    on all ranks of a job on one host, and in no other job.

    Raises:
        BootstrapError: nothing that tells the job from others can be seen from here.
    """
    try:
        launcher = launcher_process(identity.launcher)
    except OSError as error:
        raise BootstrapError(
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
