"""Descriptors of this process: those of its standard streams, and how many a start needs. One that runs out
of them fails in many ways, of which few say so.
"""

import contextlib
import errno
import os
import resource

from .errors import BootstrapError

# As many as a start of two ranks takes.
_LEAST = 12
_LAST_STANDARD = 2


def open_standard_streams() -> None:
    """Keeps 0, 1 and 2 from being given to pipes, files and sockets of ours where somebody has closed them:
    whatever writes to stderr would write there.
    """
    with contextlib.suppress(OSError):  # a limit, which ``check`` explains; a sandbox without /dev
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)


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
