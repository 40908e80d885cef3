"""What launchers of others leave to the ranks: to end with the launcher, and to leave no rank behind."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .errors import BootstrapError
from .identity import Identity
from .sources import JSRUN, MPICH, MVAPICH2, OPEN_MPI, SRUN, TORCHRUN, source_of

RANK_VARIABLE = "HOROVOD_RANK_PROCESS"  # the rank that has started, for what it starts itself

_STATE = 0
_START_TIME = 22 - 3  # field of /proc/PID/stat, less those up to the program's name
# These wait for their ranks. Of others, what has started the ranks may end long before them.
_WAIT_FOR_RANKS = (TORCHRUN, JSRUN, OPEN_MPI, MVAPICH2, MPICH, SRUN)
# These do not: a script that sets the variables of a launcher in its place may go, and its ranks stay; a rank
# that has lost its launcher already is the child of another process.
_WAIT_FOR_NOBODY = ("sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish", "systemd", "init")


# These start a container, outside of it, from where nobody may look into them.
_CONTAINERS = ("bwrap", "apptainer", "singularity", "starter", "starter-suid", "unshare", "enroot", "podman")


class Process(NamedTuple):
    """One process, and no later one of the same number."""

    pid: int
    start_time: str


NOBODY = Process(0, "")


def check_not_spawned(environ: Mapping[str, str]) -> None:
    """Raises BootstrapError in a process that a rank has started by multiprocessing, other than by fork: it
    imports the program anew, and is not to become the rank again.
    """
    main = getattr(sys.modules.get("__mp_main__"), "__name__", "")
    spawned = main == "__mp_main__" or ("multiprocessing" in sys.modules and _has_parent())
    rank, _, pid = environ.get(RANK_VARIABLE, "").partition("/")
    if spawned and pid not in ("", str(os.getpid())):
        raise BootstrapError(
            f"this process, which multiprocessing has started for rank {rank}, as "
            "a DataLoader does for its workers, imports the program anew, which calls hvd.init() again. Put "
            "all that only the rank is to do within if __name__ == '__main__':"
        )


def _has_parent() -> bool:
    import multiprocessing

    return multiprocessing.parent_process() is not None


def own_process() -> Process:
    """This one; nobody where there is no /proc."""
    try:
        return _process(os.getpid())
    except OSError:
        return NOBODY


def launcher_process(launcher: str) -> Process:
    """The nearest ancestor that is no rank itself, as wrappers of ranks are: it has not the variables of the
    launcher in its environment, or another user owns it. One of them alone says nothing: a platform that
    starts torchrun on each host may give it a RANK. From within a container, wrappers outside are known by
    their names.
    """
    source = source_of(launcher)
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                names = (entry.partition("=")[0] for entry in file.read().split("\0"))
                is_rank = source.has_started(dict.fromkeys(names, ""))
        except OSError:
            is_rank = _name(pid) in (*_WAIT_FOR_NOBODY, *_CONTAINERS)
        if not is_rank:
            break
        pid = int(_stat(pid)[1])
    return _process(pid)


def watch(identity: Identity) -> int:
    """A descriptor that is readable as soon as the launcher's process on this host has ended; -1: nobody can
    tell. It is the caller's.
    """
    if identity.launcher not in _WAIT_FOR_RANKS:
        return -1
    with contextlib.suppress(OSError, AttributeError):  # of another process namespace; an old kernel
        found = launcher_process(identity.launcher)
        if _name(found.pid) in _WAIT_FOR_NOBODY:
            return -1
        descriptor = os.pidfd_open(found.pid)
        if launcher_process(identity.launcher) == found:
            return descriptor
        os.close(descriptor)
    return -1


def continue_stopped(ranks: Iterable[Process]) -> None:
    """Has those go on that a signal has stopped, so that they see that their job is lost: no launcher but
    horovodrun may ever end them.
    """
    for rank in ranks:
        with contextlib.suppress(OSError):
            if _stat(rank.pid)[_STATE] == "T" and _process(rank.pid) == rank:
                os.kill(rank.pid, signal.SIGCONT)


def _process(pid: int) -> Process:
    return Process(pid, _stat(pid)[_START_TIME])


def _stat(pid: int) -> list[str]:
    """The fields behind the program's name: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _name(pid: int) -> str:
    """That of its program."""
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")
