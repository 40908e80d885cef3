"""``run_ranks`` for any framework: the processes that the ranks are forked from, and what asks them.

The folder of tests of a framework has a conftest.py that says what is loaded before the fork.
"""

import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from load import within

from horovod.runner.hosts import Placement
from horovod.runner.nodes.rank_process import rank_environment

ROOT = Path(__file__).resolve().parents[2]
RANK_MAIN = Path(__file__).with_name("rank_main.py")
SHOWN_OUTPUT = 20_000  # characters a rank
# Of horovod, beside its framework's part: the engine, and what every start needs.
PRELOADED = ("numpy", "psutil", "pytest", "horovod.bootstrap.mesh.mesh")

# Keras imports pandas where it is, as beside Ray, and that Arrow, whose allocator starts a thread otherwise.
_WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}

Environment = Mapping[str, str] | Callable[[int], Mapping[str, str]]


@dataclass
class RankServer:
    """A process that forks ranks, and the environment that they share with it."""

    socket: socket.socket
    environment: dict[str, str]


@contextmanager
def serve(preloaded: Sequence[str], **changes: str) -> Iterator[RankServer]:
    """Starts a process that has imported the modules ``preloaded``, with ``changes`` to the environment."""
    environment = _environment(changes)
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(RANK_MAIN), str(its.fileno()), *PRELOADED, *preloaded]
    process = subprocess.Popen(command, env=environment, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    its.close()
    assert mine.recv(16) == b"ready", "the process that forks the ranks did not start"
    yield RankServer(mine, environment)
    mine.close()
    process.wait(30)


@dataclass
class Ended:
    """How the ranks of a job have ended, and the folder in which they have left what they say.

    Attributes:
        statuses: by rank, negative when a signal has ended it.
        hanging: the ranks that did not end in time; then their stacks end their output.
        left: the command lines of processes that were left behind.
        crashed: the process that supervises the ranks has ended early; nothing else is known.
    """

    folder: Path
    size: int
    statuses: list[int]
    hanging: list[int]
    left: list[str]
    crashed: bool = False

    def problem(self, dies: Sequence[int] = ()) -> str:
        """Empty when each rank has ended well, or has died as those of ``dies`` were to."""
        if self.crashed:
            return "the process that supervises the ranks has ended early"
        if self.hanging:
            return f"ranks {self.hanging} did not end in time; their stacks end their output"
        expected = [-9 if rank in dies else 0 for rank in range(self.size)]
        if self.statuses != expected:
            return f"the ranks ended with {self.statuses}"
        return f"processes were left behind: {self.left}" if self.left else ""

    def result(self, rank: int) -> Any:
        """What the function has returned."""
        return json.loads((self.folder / f"{rank}.json").read_text(encoding="utf-8"))

    def output(self) -> str:
        """Of all ranks."""
        texts = [(self.folder / f"{rank}.out") for rank in range(self.size)]
        shown = [path.read_text(errors="replace")[-SHOWN_OUTPUT:] if path.exists() else "" for path in texts]
        return "\n".join(f"--- rank {rank} ---\n{text}" for rank, text in enumerate(shown))


def run_job(
    folder: Path,
    server: RankServer,
    np: int,
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    env: Environment | None = None,
    timeout: float = 60,
    finalize: bool = False,
    dies: Sequence[int] = (),
    hosts: Sequence[int] | None = None,
    network: Mapping[str, Any] | None = None,
) -> Ended:
    """One job, as ``runner`` describes it, however it ends."""
    own = Path(tempfile.mkdtemp(prefix=f"{function.__name__}-", dir=folder))
    request = {
        "file": str(inspect.getsourcefile(function)),
        "function": function.__name__,
        "arguments": list(arguments),
        "environments": [
            {**_environment_of_rank(server, rank, np, env), **_place(rank, hosts)} for rank in range(np)
        ],
        "timeout": within(timeout),
        "finalize": finalize,
        "dies": list(dies),
        "network": network,
    }
    (own / "request.json").write_text(json.dumps(request), encoding="utf-8")
    outcome = _outcome(server, own)
    if "crash" in outcome:
        return Ended(own, np, [], [], [], crashed=True)
    return Ended(own, np, outcome["statuses"], outcome["hanging"], outcome["left"])


def runner(folder: Path, server: RankServer) -> Callable[..., list[Any]]:
    """``run_ranks(np, function)``: calls a function of a test file in ``np`` ranks and returns their
    results.

    The function takes ``arguments`` (as JSON) and returns what JSON can express; results are in rank
    order. It initialises horovod itself. The test fails with the ranks' output when one of them fails,
    leaves a process behind, or is not done after ``timeout`` seconds; then with the stacks of all that still
    ran. ``env`` adds variables; it may be a function of the rank. ``dies`` names ranks that are to be killed
    by SIGKILL; they have the result None. ``hosts`` gives for each rank the number of the host that it is on,
    as far as its launcher says; without, all are on one. ``network`` (see networks.Hosts) gives
    them networks of their own. With ``finalize`` the interpreters of the ranks end
    in full, which takes 0.2 seconds each. May be called from several threads.
    """

    def run(np: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        ended = run_job(folder, server, np, function, *arguments, **options)
        dies = options.get("dies", ())
        problem = ended.problem(dies)
        if problem:
            pytest.fail(f"{problem}\n{ended.output()}", pytrace=False)
        return [None if rank in dies else ended.result(rank) for rank in range(np)]

    return run


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Finds the library in the tree also where it is not installed."""
    folders = [os.environ.get("PYTHONPATH", ""), str(ROOT / "frameworks")]
    paths = os.pathsep.join(filter(None, folders))
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **_WITHOUT_THREADS}
    return {**os.environ, **own, **changes}


def _environment_of_rank(server: RankServer, rank: int, size: int, env: Environment | None) -> dict[str, str]:
    own = env(rank) if callable(env) else env or {}
    environment = {**server.environment, **own}
    place = Placement(rank, "localhost", rank, size, 0, 1)
    return rank_environment(environment, place, size) if size > 1 else environment


def _place(rank: int, hosts: Sequence[int] | None) -> dict[str, str]:
    """The identity of a rank among several hosts."""
    if hosts is None:
        return {}
    local = [peer for peer in range(len(hosts)) if hosts[peer] == hosts[rank]]
    place = local.index(rank)
    across = sorted(host for host in set(hosts) if hosts.count(host) > place)
    values = {
        "HOROVOD_LOCAL_RANK": place,
        "HOROVOD_LOCAL_SIZE": len(local),
        "HOROVOD_CROSS_RANK": across.index(hosts[rank]),
        "HOROVOD_CROSS_SIZE": len(across),
        "HOROVOD_HOSTNAME": f"node{hosts[rank]}",
    }
    return {name: str(value) for name, value in values.items()}


def _outcome(server: RankServer, folder: Path) -> dict[str, Any]:
    mine, its = socket.socketpair()
    with mine:
        with its:
            socket.send_fds(server.socket, [str(folder).encode()], [its.fileno()])
        with mine.makefile() as file:
            return json.loads(file.read() or '{"crash": true}')
