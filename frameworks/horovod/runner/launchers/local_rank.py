"""One rank on this host: its command, its environment and its process."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from ..limits import usable_cores
from ..output import Display
from ..rank_output import RankStream
from ..sink import Sink
from ..supervisor import Rank

_PYTHON = re.compile(r"python[\d.]*")
_NOT_FOUND_STATUS, _NOT_EXECUTABLE_STATUS = 127, 126


class CommandError(ValueError):
    """There is no such program. ``status`` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def runnable(command: Sequence[str]) -> list[str]:
    """The user's command as it is started: ``train.py`` is run by the Python that runs this.

    Raises:
        CommandError: its first word is no program.
    """
    program = command[0]
    if shutil.which(program) is not None:
        return list(command)
    if os.path.isfile(program) and program.endswith(".py"):
        return [sys.executable, *command]
    if os.path.exists(program):
        raise CommandError(f"{program}: not executable", _NOT_EXECUTABLE_STATUS)
    advice = "; without it, a script runs with the Python of horovodrun" if _PYTHON.fullmatch(program) else ""
    raise CommandError(f"{program}: command not found{advice}", _NOT_FOUND_STATUS)


def rank_environment(common: Mapping[str, str], rank: int, size: int) -> dict[str, str]:
    """``common`` and the identity of a rank; what the user has set for threads and addresses stays."""
    defaults = {
        "OMP_NUM_THREADS": str(max(1, usable_cores() // size)),
        "MASTER_ADDR": "127.0.0.1",
    }
    identity = {
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": rank,
        "HOROVOD_LOCAL_SIZE": size,
        "HOROVOD_CROSS_RANK": 0,
        "HOROVOD_CROSS_SIZE": 1,
        "HOROVOD_HOSTNAME": "localhost",
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": size,
        "PYTHONUNBUFFERED": 1,
    }
    return {**defaults, **common, **{name: str(value) for name, value in identity.items()}}


def start_rank(
    number: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    sinks: Sequence[Sink],
    files: Mapping[str, BinaryIO],
    display: Display,
) -> Rank:
    """Starts the command in a session of its own, with its output in pipes. Only the rank that the user has
    chosen has something to read.
    """
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in sinks]
    try:
        process = subprocess.Popen(
            command,
            stdin=None if number == display.stdin_rank else subprocess.DEVNULL,
            stdout=pipes[0][1],
            stderr=pipes[1][1],
            env=environment,
            start_new_session=True,
        )
    except BaseException:
        for read_end, _ in pipes:
            os.close(read_end)
        raise
    finally:
        for _, write_end in pipes:
            os.close(write_end)
    process.returncode = 0  # the supervisor waits for it, among all other children
    streams = []
    for (read_end, _), name, sink in zip(pipes, ("stdout", "stderr"), sinks, strict=True):
        prefixer = display.prefixer(number, name, sink.is_terminal) if display.shows(number) else None
        has_prompts = number == display.stdin_rank
        streams.append(RankStream(read_end, sink, prefixer, files.get(name), has_prompts))
    return Rank(number, process.pid, streams[0], streams[1])
