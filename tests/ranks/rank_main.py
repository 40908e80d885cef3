"""The process that the ranks of the tests are forked from, so that none of them has to import a framework.

rank_main.py DESCRIPTOR MODULE...

Imports the modules, then serves jobs until the other end of the socket DESCRIPTOR is closed. A request is the
path of a folder with a file ``request.json`` (see rank_server.py), and a descriptor: the connection on which
the outcome is awaited.
Each job is a child of this process and does what horovodrun does; the ranks are its children. They leave
``<rank>.json``, the result, and ``<rank>.out``, what they have written, in the folder.

No thread runs here and no engine: a fork takes neither along.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import random
import secrets
import select
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path

from load import within
from networks import enter

STACKS = signal.SIGUSR1  # makes a rank write its Python stacks
SECONDS_AFTER_A_FAILURE = 10.0
SECONDS_FOR_STACKS = 1.0
SECONDS_FOR_HELPERS = 2.0  # such as the resource tracker of multiprocessing, which outlives its rank a little
_PR_SET_CHILD_SUBREAPER = 36


def load(file: str):
    """The test file as a module, under its own name, so that spawned children find its functions again."""
    path = Path(file)
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]  # its room, and what rooms share
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """See the text of this file."""
    preload(sys.argv[2:])
    gc.collect()
    gc.freeze()  # a collection in a rank would copy every page of what was loaded here
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"importing {sys.argv[2:]} has started {len(threads) - 1} threads"
    server = socket.socket(fileno=int(sys.argv[1]))
    server.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, 4096, 1)
        if not message:
            os._exit(0)
        connection = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            server.close()
            run_job(Path(message.decode()), connection)
        connection.close()
        reap()


def preload(modules: list[str]) -> None:
    """Imports them, once for all ranks."""
    for name in modules:
        # What cannot be imported fails the tests that need it, in a rank, whose output they show.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    use_one_thread()


def use_one_thread() -> None:
    """Of PyTorch. A forked process makes its pool anew when it is first used, which threads must not do at
    the same time: it raises "Invalid thread pool" then.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def reap() -> None:
    """Jobs that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run_job(folder: Path, connection: socket.socket) -> None:
    """Does not return. A forked rank leaves by SystemExit, so nothing here may catch that or clean up."""
    from horovod.bootstrap.secret import SECRET_VARIABLE
    from horovod.bootstrap.start_settings import STORE_VARIABLE
    from horovod.bootstrap.store.server import StoreServer

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    environments, store = request["environments"], None
    network = request["network"]
    if network:
        enter(network["switch"])
    if len(environments) > 1:
        secret = secrets.token_bytes(32)
        where = {"kind": "tcp", "hosts": network["store"]} if network else {}
        store = StoreServer(secret, len(environments), **where)
        addresses = {STORE_VARIABLE: store.address, SECRET_VARIABLE: secret.hex()}
        environments = [{**environment, **addresses} for environment in environments]
    ranks: dict[int, int] = {}
    for rank, environment in enumerate(environments):
        pid = os.fork()
        if pid == 0:
            connection.close()
            be_rank(request, folder, rank, environment)
        ranks[pid] = rank
    if store is not None:
        store.start()
    outcome = supervise(ranks, connection, request["timeout"], request["dies"])
    outcome["left"] = end_the_rest()
    if store is not None:
        store.close()
        (folder / "refused").write_text(str(store.dropped), encoding="ascii")
    connection.sendall(json.dumps(outcome).encode())
    os._exit(0)


def be_rank(request: dict, folder: Path, rank: int, environment: dict[str, str]) -> None:
    """Runs the function in a fresh child. Does not return."""
    os.setsid()
    if request["network"]:
        enter(request["network"]["ranks"][rank])
    output = os.open(folder / f"{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    faulthandler.register(STACKS, all_threads=True)
    os.environ.clear()
    os.environ.update(environment)
    use_one_thread()
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.argv = [request["file"]]
    status: object = 0
    try:
        result = getattr(load(request["file"]), request["function"])(*request["arguments"])
        (folder / f"{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    except SystemExit as leaving:
        status = leaving.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if request["finalize"]:
        sys.exit(status)
    end(status)


def end(status: object) -> None:
    """Ends like an interpreter that does not take every module apart, which costs more than most tests."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def supervise(ranks: dict[int, int], connection: socket.socket, timeout: float, dies: list[int]) -> dict:
    """Waits for the ranks; those that do not end are told to show their stacks, then killed. One of ``dies``
    that ends is no reason to hurry.
    """
    descriptors = {os.pidfd_open(pid): pid for pid in ranks}
    poller = select.poll()
    for descriptor in [*descriptors, connection.fileno()]:
        poller.register(descriptor, select.POLLIN)
    statuses, hanging, deadline = {}, [], time.monotonic() + timeout
    while len(statuses) < len(ranks):
        for descriptor, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if descriptor == connection.fileno():  # the test has been given up
                os._exit(len(end_the_rest(0.0)))
            pid = descriptors[descriptor]
            poller.unregister(descriptor)
            statuses[ranks[pid]] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if statuses[ranks[pid]] != 0 and ranks[pid] not in dies:
                deadline = min(deadline, time.monotonic() + within(SECONDS_AFTER_A_FAILURE))
        alive = {pid: rank for pid, rank in ranks.items() if rank not in statuses}
        if alive and time.monotonic() >= deadline:
            hanging += alive.values()
            signal_all(alive, STACKS)
            time.sleep(SECONDS_FOR_STACKS)
            signal_all(alive, signal.SIGKILL)
            deadline = time.monotonic() + within(SECONDS_AFTER_A_FAILURE)
    return {"statuses": [statuses[rank] for rank in ranks.values()], "hanging": hanging}


def signal_all(pids, number: int) -> None:
    """Those that this process has not waited for yet exist."""
    for pid in pids:
        os.kill(pid, number)


def end_the_rest(seconds: float = SECONDS_FOR_HELPERS) -> list[str]:
    """Waits for the descendants that the ranks have left behind, then kills them; their command lines."""
    from horovod.runner.nodes import guard

    deadline, names = time.monotonic() + within(seconds), []
    while rest := guard.descendants(os.getpid()):
        if time.monotonic() >= deadline:
            names += [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in rest]
            guard.signal_all(rest, signal.SIGKILL)
        time.sleep(0.01)
        reap()
    return names


if __name__ == "__main__":
    main()
