"""Starts the ranks of a job on this host, has them supervised, and leaves nothing behind."""

import argparse
import contextlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from horovod.bootstrap import endpoints, secret
from horovod.bootstrap.mesh import shared_memory_refusal
from horovod.bootstrap.start import STORE_VARIABLE
from horovod.bootstrap.store import StoreServer
from horovod.bootstrap.text import escaped

from .. import limits, options
from ..hosts import allocate
from ..loop import Loop
from ..nodes.children import Children
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.node import Work
from ..nodes.rank_process import CommandError, runnable, threads
from ..output import Display
from ..rank_output import FILES_OF_A_RANK, open_files, outputs_of
from ..signals import SignalQueue
from ..sink import Sink
from ..supervisor import Supervisor

JOB_VARIABLE = "HOROVOD_JOB_ID"
_USAGE_STATUS = 2
_TRANSPORTS = {"auto": "shared memory", "shm": "shared memory", "tcp": "TCP"}


def launch(arguments: argparse.Namespace) -> int:
    """Runs ``arguments.command`` as ``arguments.num_proc`` ranks and returns the status of the job."""
    _open_standard_streams()
    try:
        arguments.command = runnable(arguments.command)
    except CommandError as error:
        _complain(str(error))
        return error.status
    refusal = limits.refusal(arguments.num_proc, FILES_OF_A_RANK if arguments.output_filename else 0)
    if refusal is not None:
        _complain(refusal)
        return _USAGE_STATUS
    files: list[dict[str, BinaryIO]] = [{} for _ in range(arguments.num_proc)]
    if arguments.output_filename:
        try:
            files = open_files(arguments.output_filename, arguments.num_proc)
        except OSError as error:
            _complain(f"--output-filename: {error}")
            return _USAGE_STATUS
    return _launch(arguments, files)


def _launch(arguments: argparse.Namespace, files: Sequence[Mapping[str, BinaryIO]]) -> int:
    with contextlib.ExitStack() as stack:
        signals = SignalQueue()
        stack.callback(signals.close)
        sinks = [Sink(1, signals.wake)]
        sinks.append(sinks[0] if _are_same(1, 2) else Sink(2, signals.wake))
        for sink in sinks:
            stack.callback(sink.close)
        try:
            loop = Loop(signals, Children())
            stack.callback(loop.close)
            return _supervise(arguments, files, loop, sinks, stack)
        except OSError as error:  # a limit on processes or descriptors, mostly
            behind = limits.limit_behind(error, arguments.num_proc)
            _complain(f"cannot start {arguments.num_proc} ranks: {error}{behind}")
    return 1


def _supervise(
    arguments: argparse.Namespace,
    files: Sequence[Mapping[str, BinaryIO]],
    loop: Loop,
    sinks: Sequence[Sink],
    stack: contextlib.ExitStack,
) -> int:
    job_secret, job, size = secrets.token_bytes(secret.SECRET_BYTES), secrets.token_hex(8), arguments.num_proc
    store = StoreServer(
        job_secret, size, say=lambda text: sinks[1].put(f"horovodrun: warning: {text}\n".encode())
    )
    stack.callback(store.close)
    call = arguments.call
    if call is not None:
        call.attach(store)
    offered = secret.offer(job_secret)
    stack.callback(offered.close)
    guardian = Guardian(f"{JOB_VARIABLE}={job}")
    stack.callback(guardian.dismiss)
    stack.callback(loop.children.kill_strays)
    loop.children.expect(guardian.pid, is_tool=True)
    common = {**os.environ, **options.environment(arguments), JOB_VARIABLE: job}
    secret.remove(common)  # of a job that this one is started in
    common |= {STORE_VARIABLE: store.address, **offered.variables}
    if "MASTER_PORT" not in common:
        common |= _master_port(sinks[1])
    store.start()
    placements = allocate(arguments.host_list, size)
    if arguments.verbose or sinks[1].is_terminal:
        sinks[1].put(f"horovodrun: {_outline(size, common)}\n".encode())
    if crowding := limits.crowding(size):
        sinks[1].put(f"horovodrun: warning: {crowding}\n".encode())
    display = Display(arguments.prefix_output_with_timestamp, arguments.ranks, arguments.stdin_rank)
    outputs = outputs_of(size, sinks, display, files)
    hosts = [place.host for place in placements]
    on_failure = None if call is None else call.on_failure
    supervisor = Supervisor(loop, sinks, outputs, hosts, store, arguments.verbose, on_failure)
    node = LocalNode(hosts[0], loop.selector, loop.children, guardian, supervisor)
    stack.callback(node.close)
    node.start(Work(arguments.command, common, placements, size, arguments.stdin_rank))
    return supervisor.run([node])


def _outline(size: int, common: Mapping[str, str]) -> str:
    """The job in one line: ranks, host, transport, threads, the last two as the environment has them."""
    cores = limits.usable_cores()
    wanted = common.get("HOROVOD_TRANSPORT") or "auto"
    refusal = shared_memory_refusal() if wanted == "auto" else None
    transport = f"TCP (no shared memory: {refusal})" if refusal else _TRANSPORTS.get(wanted, wanted)
    return escaped(
        f"{_many(size, 'rank')} on {os.uname().nodename} ({_many(cores, 'core')}), over {transport}, "
        f"{_many(common.get('OMP_NUM_THREADS', threads(size)), 'thread')} each"
    )


def _many(count: int | str, noun: str) -> str:
    return f"{count} {noun}{'' if str(count) == '1' else 's'}"


def _master_port(sink: Sink) -> dict[str, str]:
    """A port for programs that make connections of their own; a job that makes none runs without one."""
    try:
        return {"MASTER_PORT": str(endpoints.free_port())}
    except OSError:
        taken = f"MASTER_PORT is not set: all ports of {endpoints.port_range()} are taken"
        sink.put(f"horovodrun: warning: {taken}\n".encode())
        return {}


def _open_standard_streams() -> None:
    """Keeps 0, 1 and 2 from being given to pipes and sockets when the caller had closed them."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def _are_same(one: int, other: int) -> bool:
    """Whether two descriptors lead to one file, pipe or terminal, where their lines could mix."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def _complain(message: str) -> None:
    print(f"horovodrun: error: {escaped(message)}", file=sys.stderr)
