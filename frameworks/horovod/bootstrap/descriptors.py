"""Descriptors of this process. A start that runs out of them fails in many ways, of which few say so."""

import errno
import os
import resource

from .errors import BootstrapError

# As many as a start of two ranks takes.
_LEAST = 12


def check(rank: int, connections: int) -> None:
    """Makes sure that this process can open what a start takes at least.

    Args:
        rank: of this process.
        connections: those of other ranks that it serves meanwhile.

    Raises:
        BootstrapError: the limit of open files does not allow it; the text says which it is, and the remedy.
    """
    needed = _LEAST + connections
    held: list[int] = []
    try:
        while len(held) < needed:
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return
        raise BootstrapError(f"rank {rank} cannot start: {_reason(error, len(held), needed)}") from None
    finally:
        for descriptor in held:
            os.close(descriptor)


def _reason(error: OSError, left: int, needed: int) -> str:
    if error.errno == errno.ENFILE:
        return "this machine has as many open files as it may (sysctl fs.file-max)"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"its process may have {limit:,} open files, of which {left} are left, and a start needs {needed} at "
        "least. Raise the limit, for example to 4,096: ulimit -n 4096"
    )
