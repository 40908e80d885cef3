"""Starts the ranks of a job on this host, has them supervised, and leaves nothing behind."""

import argparse
import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence

from horovod.bootstrap import endpoints, secret
from horovod.bootstrap.mesh import shared_memory_refusal
from horovod.bootstrap.start import STORE_VARIABLE
from horovod.bootstrap.store import StoreServer
from horovod.bootstrap.text import escaped

from .. import limits, options
from ..hosts import allocate
from ..loop import Loop
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.node import Work
from ..nodes.rank_process import threads
from ..output import Display
from ..rank_output import outputs_of
from ..sink import Sink
from ..supervisor import Supervisor
from . import setup

JOB_VARIABLE = "HOROVOD_JOB_ID"
_TRANSPORTS = {"auto": "shared memory", "shm": "shared memory", "tcp": "TCP"}


def launch(arguments: argparse.Namespace) -> int:
    """Runs ``arguments.command`` as ``arguments.num_proc`` ranks and returns the status of the job."""
    return setup.launch(arguments, _supervise)


def _supervise(
    arguments: argparse.Namespace,
    files: setup.Files,
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
    outputs = outputs_of(size, sinks, display, files, arguments.journal)
    hosts = [place.host for place in placements]
    on_failure = None if call is None else call.on_failure
    arguments.journal.start(arguments.command, hosts)
    supervisor = Supervisor(
        loop,
        sinks,
        outputs,
        hosts,
        store,
        arguments.verbose,
        on_failure,
        options.ending(arguments),
        arguments.journal,
    )
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
