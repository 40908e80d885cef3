"""Strangers who dial the launcher of an elastic job by the thousand, and what it says of them."""

import itertools
import re
import secrets
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray_programs as programs
from load import within
from running import Running

from horovod.bootstrap.network.auth import Connector
from horovod.ray import ElasticRayExecutor
from horovod.runner.nodes.joining import TERMS

COUNT = 1000
WAVE = 100  # that are open at once
QUIET_SECONDS = 11.0  # at most every ten seconds the launcher tells of strangers
COUNTED = re.compile(r"refused a connection from [^ ]+(?: and (\d+) others)?")


def launcher() -> psutil.Process:
    """The child of this process that listens where ranks' nodes dial."""
    (found,) = (each for each in psutil.Process().children() if "--rendezvous" in each.cmdline())
    return found


def stranger(where: tuple[str, int], kind: str) -> socket.socket:
    """A connection of somebody without the secret."""
    connection = socket.create_connection(where, within(5))
    connection.settimeout(within(5))
    if kind == "garbage":
        connection.sendall(secrets.token_bytes(200))
    elif kind != "silent":
        connection.sendall(Connector(secrets.token_bytes(32), TERMS).greeting())
        assert connection.recv(1)
        if kind == "wrong secret":
            connection.sendall(secrets.token_bytes(64))
    return connection


@pytest.mark.slow
def test_a_thousand_strangers(cluster: Any, tmp_path: Path, capsys: Any) -> None:
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=2, timeout_s=within(30))
    job = Running(ElasticRayExecutor(settings), programs.train_until, str(tmp_path / "stop"))
    there = job.wait_for(2, 60)["there"]
    words = launcher().cmdline()
    host, _, port = words[words.index("--rendezvous") + 1].rpartition(":")
    kinds, first = itertools.cycle(["half", "wrong secret", "garbage", "silent"]), time.monotonic()
    for _ in range(COUNT // WAVE):
        for connection in [stranger((host, int(port)), kind) for kind in itertools.islice(kinds, WAVE)]:
            connection.close()
    assert job.wait_for(2)["there"] == there  # the same ranks
    time.sleep(max(0.0, first + QUIET_SECONDS - time.monotonic()))
    stranger((host, int(port)), "garbage").close()  # at whom it tells of those before
    assert job.wait_for(2)["there"] == there
    (tmp_path / "stop").touch()
    assert [numbers[:2] for numbers in job.finish()] == [(0, 2), (1, 2)]
    job.check_steps()
    told = COUNTED.findall(capsys.readouterr().err)
    assert sum(1 + int(others or 0) for others in told) == COUNT + 1, told
