"""One rank on this host: its environment and its process."""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from ..rank_output import RankStream
from ..sink import Sink
from ..supervisor import Rank


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


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or the quota is "max"
        return cores


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_rank(
    number: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    sinks: Sequence[Sink],
    files: Mapping[str, BinaryIO],
    timestamps: bool,
) -> Rank:
    """Starts the command in a session of its own, with its output in pipes and nothing to read."""
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in sinks]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
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
    streams = [
        RankStream(pipe[0], f"[{number}]<{name}>:", sink, files.get(name), timestamps)
        for name, pipe, sink in zip(("stdout", "stderr"), pipes, sinks, strict=True)
    ]
    return Rank(number, process.pid, streams[0], streams[1])
