"""What ranks that MPI has started learn the job's address and secret by: HOROVOD_CONTROLLER. What they agree
on later travels by horovod's own links in any case.
"""

import ctypes
from collections.abc import Mapping

from . import libraries
from .errors import BootstrapError
from .identity import HOROVODRUN, Identity
from .text import shown

VARIABLE = "HOROVOD_CONTROLLER"
_MOST_CARRIED = 4096  # bytes that rank 0 tells at the start


def is_mpi(environ: Mapping[str, str]) -> bool:
    """Whether it is MPI. Raises ValueError for an unknown one."""
    value = environ.get(VARIABLE, "")
    if value.lower() not in ("", "gloo", "mpi"):
        raise ValueError(f"{VARIABLE}={shown(value)}: expected gloo (the default: no MPI) or mpi")
    return value.lower() == "mpi"


def check(identity: Identity, environ: Mapping[str, str]) -> None:
    """Raises ValueError for one that this process cannot have, and BootstrapError for one that was not
    built.
    """
    if not is_mpi(environ):
        return
    asked = f"rank {identity.rank}: {VARIABLE}=mpi"
    if identity.launcher == HOROVODRUN:
        raise ValueError(
            f"{asked}, but horovodrun itself started this process: start the job with horovodrun --mpi, or "
            f"unset {VARIABLE}"
        )
    if not libraries.built("mpi"):
        raise BootstrapError(f"{asked}: {libraries.how_to_get('mpi')}. Or unset {VARIABLE}")


class MpiCarrier:
    """A carrier (see rendezvous/carriers.py): MPI that has started the ranks. ``tell`` and ``hear`` are
    collective, once.

    Raises BootstrapError where this process cannot use MPI.
    """

    name = "MPI"
    is_public = False

    def __init__(self, rank: int, environ: Mapping[str, str], timeout: float) -> None:
        self._asked, self._timeout = f"rank {rank}: {VARIABLE}=mpi", timeout
        self._heard = ""
        try:
            library, module = libraries.opened("mpi", environ)
        except BootstrapError as error:
            raise BootstrapError(f"{self._asked}: {error}. Or unset {VARIABLE}") from None
        libraries.initialize(library, rank, VARIABLE, timeout)
        self._broadcast = module.hvd_library_broadcast
        self._broadcast.restype = ctypes.c_char_p
        self._broadcast.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_double)

    def tell(self, value: str) -> None:
        """Gives ``value`` to all other ranks."""
        self._exchange(value, self._timeout)

    def hear(self, timeout: float) -> str:
        """What rank 0 tells; again at every further call."""
        if not self._heard:
            self._heard = self._exchange("", timeout)
        return self._heard

    def _exchange(self, value: str, timeout: float) -> str:
        line = ctypes.create_string_buffer(value.encode(), _MOST_CARRIED)
        if why := self._broadcast(line, _MOST_CARRIED, timeout):
            raise BootstrapError(f"{self._asked}: {why.decode(errors='replace')} within {timeout:g} s")
        return line.value.decode(errors="replace")
