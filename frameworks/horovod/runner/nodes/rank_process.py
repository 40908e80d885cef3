"""One rank on this host: its command, its environment and its process."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..hosts import Placement
from ..limits import usable_cores

_PYTHON = re.compile(r"python[\d.]*")
_NOT_FOUND_STATUS, _NOT_EXECUTABLE_STATUS = 127, 126


class CommandError(ValueError):
    """There is no such program. ``status`` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def runnable(command: Sequence[str], folder: str = "", path: str | None = None) -> list[str]:
    """The user's command as it is started in ``folder``: ``train.py`` is run by the Python that runs this.

    Args:
        command: its words.
        folder: an absolute one, or that of this process.
        path: the PATH of the ranks, if not that of this process.

    Returns:
        The words to start.

    Raises:
        CommandError: its first word is no program.
    """
    program = command[0]
    file = os.path.join(folder, program)
    if shutil.which(file if os.sep in program else program, path=path) is not None:
        return list(command)
    if os.path.isfile(file) and program.endswith(".py"):
        return [sys.executable, *command]
    if os.path.exists(file):
        raise CommandError(f"{program}: not executable", _NOT_EXECUTABLE_STATUS)
    advice = "; without it, a script runs with the Python of horovodrun" if _PYTHON.fullmatch(program) else ""
    absent = "no such file" if program.endswith(".py") or os.sep in program else "command not found"
    raise CommandError(f"{program}: {absent}{advice}", _NOT_FOUND_STATUS)


def rank_environment(
    common: Mapping[str, str], place: Placement, size: int, own_threads: int | None = None
) -> dict[str, str]:
    """``common`` and the identity of a rank in a job of ``size``; what the user has set for threads and
    addresses stays. ``own_threads``: of a rank that has cores of its own.
    """
    defaults = {**shared_by(place.local_size, own_threads), "MASTER_ADDR": "127.0.0.1"}
    identity = {
        "HOROVOD_RANK": place.rank,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": place.local_rank,
        "HOROVOD_LOCAL_SIZE": place.local_size,
        "HOROVOD_CROSS_RANK": place.cross_rank,
        "HOROVOD_CROSS_SIZE": place.cross_size,
        "HOROVOD_HOSTNAME": place.host,
        "RANK": place.rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": place.local_size,
        "PYTHONUNBUFFERED": 1,
    }
    return {**defaults, **common, **{name: str(value) for name, value in identity.items()}}


def shared_by(local_size: int, own_threads: int | None = None) -> dict[str, str]:
    """What tells each of so many ranks of this host its share of the cores, unless the user does."""
    return {"OMP_NUM_THREADS": str(own_threads or threads(local_size))}


def threads(local_size: int) -> int:
    """How many each rank of this host may use for its computations."""
    return max(1, usable_cores() // local_size)


@dataclass(frozen=True)
class RankProcess:
    """A process that leads its own session and process group, and the ends to read its stdout and stderr."""

    pid: int
    outputs: tuple[int, int]


def start_rank(
    command: Sequence[str],
    environment: Mapping[str, str],
    reads_input: bool,
    cores: Collection[int] | None = None,
    folder: str | None = None,
) -> RankProcess:
    """Starts the command in a session of its own, with its output in pipes, bound to ``cores`` and in
    ``folder`` if there are any. Only with ``reads_input`` it has something to read.
    """
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
    try:
        with _bound_to(cores):
            process = subprocess.Popen(
                command,
                stdin=None if reads_input else subprocess.DEVNULL,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
    except BaseException:
        for read_end, _ in pipes:
            os.close(read_end)
        raise
    finally:
        for _, write_end in pipes:
            os.close(write_end)
    process.returncode = 0  # whoever reaps all children waits for it
    return RankProcess(process.pid, (pipes[0][0], pipes[1][0]))


@contextlib.contextmanager
def _bound_to(cores: Collection[int] | None) -> Iterator[None]:
    """What this thread starts inside inherits the cores, before it can start threads of its own."""
    if cores is None:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
