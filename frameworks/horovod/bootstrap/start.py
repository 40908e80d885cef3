"""Starts and stops the engine of this process: identity, links to the others, link to the launcher."""

import contextlib
import hmac
import os
import sys
import time
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from . import controller, descriptors, gpu_libraries, libraries, processes, secret, summary, variables
from .engine import start_engine
from .errors import AbandonedError, BootstrapError, StartTimeoutError
from .identity import ALONE, HOROVODRUN, Identity, from_environment, placed, reason
from .secret import SECRET_BYTES
from .sources import is_within_a_rank
from .start_settings import STORE_VARIABLE, host_timeout, is_elastic, staging, start_timeout
from .start_settings import wiring as wiring_of
from .text import escaped, log

if TYPE_CHECKING:
    from .membership import Membership
    from .mesh.on_demand import OnDemand
    from .rendezvous.carriers import Carrier
    from .rendezvous.rendezvous import Rendezvous
    from .store.client import LauncherLink, StoreClient

_MOST_STARTS = 10  # of an elastic job in a row, each ended by a rank's end


class _Job:
    """The ranks that start together: what outlives a stop of them, if they start again."""

    def __init__(self, generation: int = 0, secret: bytes | None = None, comm: Any = None) -> None:
        self.generation = generation
        self.secret = secret  # once it is taken out of the environment
        self.rendezvous: Rendezvous | None = None  # where no launcher of ours has a store
        self.comm = comm  # whose members they are; None: all that the launcher has started


class _Process:
    """What outlives a stop. The members of a communicator meet anew at each start; the job of all ranks goes
    on meanwhile as it was: not all of its ranks need be in a communicator, or as often. ``membership``: in an
    elastic job, where each generation is a job of its own.
    """

    def __init__(self) -> None:
        self.membership: Membership | None = None
        self.all_ranks = _Job()
        self.job = _Job()  # of the last start
        self.starts = 0
        self.started = False
        self.given: bytes | None = None  # the user's secret, where no launcher of ours has a store
        self.own = os.urandom(SECRET_BYTES)  # in a job of one
        self.neighbours: list[processes.Process] = []  # that this rank looks after
        self.on_demand: OnDemand | None = None  # makes links while the engine runs
        self.library = libraries.OUR_OWN
        self.pid = 0
        self.forked_from = 0


_process = _Process()


def start(environ: MutableMapping[str, str] | None = None, comm: Any = None) -> None:
    """Makes this process a rank and starts its engine. Collective: all ranks start (and start again)
    together.

    Raises ValueError for a wrong environment and BootstrapError when the ranks do not come together. A
    second start without a stop in between does nothing. ``comm``: the communicator of mpi4py whose members
    are the job, or a list of ranks, checked; None: the job is the one that the environment tells.
    """
    environment = os.environ if environ is None else environ
    if is_started():
        return
    if _process.forked_from:
        raise BootstrapError(
            f"this process was forked from process {_process.forked_from}, which is a rank of the job: a "
            "forked child is not a rank and cannot become one. Use horovod in the parent only"
        )
    processes.check_not_spawned(environment)
    descriptors.open_standard_streams()
    for left in reversed(range(_MOST_STARTS)):
        try:
            _start_once(environment, comm)
            return
        except (AbandonedError, StartTimeoutError) as error:
            if _process.membership is None or left == 0:
                raise
            log("warning", _process.membership.rank, f"{escaped(str(error))}; the ranks start again")


def _start_once(environment: MutableMapping[str, str], comm: Any) -> None:
    began = time.monotonic()
    if is_within_a_rank(environment):
        secret.remove(environment)
    bad = variables.without_meaning(environment)
    identity = _choose_job(comm, environment)
    _warn_of_variables(identity, environment, bad)
    controller.check(identity, environment)
    wiring = wiring_of(environment)
    library = _process.library = libraries.wanted(identity.rank, environment)
    gpu = gpu_libraries.wanted(identity.rank, environment)
    _process.starts, _process.pid = _process.starts + 1, os.getpid()
    if identity.rank == 0 and identity.launcher not in (HOROVODRUN, ALONE) and _process.starts == 1:
        log("info", 0, reason(identity, environment))
    if identity.size == 1:
        _forget_secret(environment)
        start_engine(identity, _process.job.generation, "shm", [], library=library, gpu=gpu)
        made = "1 host", "alone"
    else:
        made = _start_among_others(identity, wiring, library, gpu, environment)
    if _process.membership is not None:
        _process.membership.use()
    if identity.rank == 0:
        summary.tell(identity, made, time.monotonic() - began, _process.starts)
    _process.started = True
    environment[processes.RANK_VARIABLE] = f"{identity.rank}/{os.getpid()}"


def stop() -> None:
    """Stops the engine; ``start`` may be called again. Idempotent, and without effect in a forked child."""
    if is_started():
        from horovod import _core

        _process.started = False
        _core.shutdown()
        if _process.on_demand is not None:
            _process.on_demand.close()
        _process.on_demand = None
        # An error ends this process, and the job with it: it has been told already, or it is on its way.
        if hasattr(sys, "last_value") or sys.exc_info()[0] is not None:
            processes.continue_stopped(_process.neighbours)


def library() -> libraries.Library:
    """What carries out the collectives on the CPU since the last start."""
    return _process.library


def is_started() -> bool:
    """True in a process that has started; False in its forked children."""
    return _process.started


def launchers_store(
    environ: MutableMapping[str, str] | None = None, timeout: float | None = None
) -> "StoreClient":
    """A connection of this rank to the store of horovodrun, which the caller closes, beside the one of its
    engine: before the start, while the engine runs, or after its end. ``environ``: other than the process has
    by now. ``timeout``: other than that of the start.

    Raises ValueError for a wrong environment and BootstrapError when horovodrun does not answer.
    """
    environment = os.environ if environ is None else environ
    timeout = start_timeout(environment) if timeout is None else timeout
    if is_elastic(environment):
        from . import membership

        return membership.connect(environment, _take_secret(environment), timeout)
    return _launchers_store(from_environment(environment), environment, timeout, generation=0)


def key_for(purpose: str) -> bytes:
    """A key that only the ranks of this job have, in this generation, and use for one purpose."""
    label = f"horovod {purpose} {_process.job.generation}".encode()
    return hmac.digest(_process.job.secret or _process.own, label, "sha256")


def communicator() -> Any | None:
    """The one whose members are the job since the last start, or a given job; None: the job is all ranks."""
    return _process.job.comm


def _choose_job(comm: Any, environment: MutableMapping[str, str]) -> Identity:
    timeout = start_timeout(environment)
    if is_elastic(environment):
        return _join(comm, environment, timeout)
    if comm is not None:
        from .communicator import communicator_of

        comm = communicator_of(comm, timeout)
    if _process.job.comm is not None and _process.job.rendezvous and _process.job.rendezvous.server:
        _process.job.rendezvous.server.close()
    _process.job = _process.all_ranks if comm is None else _Job(comm=comm)
    _process.job.generation += 1
    if comm is None:
        return from_environment(environment)
    from .communicator import identity_of

    return identity_of(comm, environment, timeout)


def _join(comm: Any, environment: MutableMapping[str, str], timeout: float) -> Identity:
    """Waits for a place in the next generation of an elastic job."""
    if comm is not None:
        raise ValueError("hvd.init(comm=...) in an elastic job: its ranks are for its launcher to say")
    from .membership import Membership

    root = _take_secret(environment)
    _process.membership = _process.membership or Membership(environment, root, timeout)
    place = _process.membership.join()
    place.export(environment)
    _process.job = _Job(place.generation, secret.of_generation(root, place.generation))
    return from_environment(environment)


def elastic_membership() -> "Membership | None":
    """This process's channel to the launcher of an elastic job, once it has started; None in other jobs."""
    return _process.membership


def _forget_secret(environment: MutableMapping[str, str]) -> None:
    """A rank without others needs none to start, but to tell how far it is, or at a later start."""
    if _process.job.comm is None:
        with contextlib.suppress(ValueError):
            _take_secret(environment)
        secret.remove(environment)
    else:
        _process.given = secret.take(environment) or _process.given


def _start_among_others(
    identity: Identity,
    wiring: str,
    library: libraries.Library,
    gpu: gpu_libraries.GpuLibraries,
    environment: MutableMapping[str, str],
) -> tuple[str, str]:
    """Returns on how many hosts the ranks are, and how they reach each other, and why so."""
    from .mesh.mesh import Entry, connect_mesh
    from .network.interfaces import from_environment as network_of

    keeps_store = identity.rank == 0 and identity.launcher != HOROVODRUN
    descriptors.check(identity.rank, identity.size - 2 if keeps_store else 0)
    timeout, staged = start_timeout(environment), staging(environment)
    deadline = time.monotonic() + timeout
    generation = _process.job.generation
    if identity.launcher == HOROVODRUN:
        store = _launchers_store(identity, environment, timeout, generation)
    else:
        store = _own_store(identity, environment, timeout)
    assert _process.job.secret is not None
    try:
        own = (network_of(environment), str(library), gpu, staged, host_timeout(environment))
        entry = Entry(identity, generation, store, _process.job.secret, timeout, *own)
        mesh = connect_mesh(entry, wiring, deadline)
    except BaseException as error:
        if isinstance(error, BootstrapError) and error.absent:
            store.blame(error.absent, str(error))
        store.close()
        raise
    if identity.launcher != HOROVODRUN:
        identity = placed(identity, mesh.hosts)
        _process.neighbours = mesh.neighbours
    summary.tell_links(identity, mesh.links)
    left = max(0.1, mesh.arrived + timeout - time.monotonic())
    try:
        # The end of a store in rank 0 is no news: that rank is watched like every other.
        launcher = _launcher_link(store, identity)
    except BaseException:  # the others wait for this rank until its links end
        mesh.close()
        raise
    finally:
        store.close()
    try:
        start_engine(
            identity,
            generation,
            mesh.wiring,
            mesh.links,
            launcher,
            left,
            mesh.hosts,
            mesh.host_names,
            library,
            mesh.gpu,
            mesh.on_demand,
        )
    except RuntimeError as error:  # a rank has ended meanwhile
        if _process.membership is None:
            raise
        raise AbandonedError(str(error)) from error
    _process.on_demand = mesh.on_demand
    hosts = f"{len(set(mesh.hosts))} hosts" if mesh.hosts else "1 host"
    by = f", collectives on the CPU by {library}" if library.name else ""
    by += f", between GPUs by {mesh.gpu.name} ({escaped(mesh.gpu.library)})" if mesh.gpu.name else ""
    return hosts, f"{summary.way(mesh, wiring)}{by}"


def _launcher_link(store: "StoreClient", identity: Identity) -> "LauncherLink":
    """By what the core sees the end of the launcher. horovodrun hears that this rank has all other links."""
    from .store.client import LauncherLink
    from .store.messages import LINKED

    if identity.launcher != HOROVODRUN:
        return LauncherLink(processes.watch(identity), bytes(SECRET_BYTES), 0)
    store.set(f"{_process.job.generation}/{LINKED}/{identity.rank}", b"")
    return store.detach()


def _launchers_store(
    identity: Identity, environment: MutableMapping[str, str], timeout: float, generation: int
) -> "StoreClient":
    from .store.client import StoreClient

    own_secret = _take_secret(environment)
    if _process.membership is not None and _process.job.secret is not None:
        own_secret = _process.job.secret
    address = environment.get(STORE_VARIABLE)
    if not address:
        raise ValueError(
            f"HOROVOD_SIZE={identity.size} but {STORE_VARIABLE} is not set: start the job with horovodrun"
        )
    return StoreClient(address, own_secret, identity.rank, generation, timeout)


def _own_store(identity: Identity, environment: MutableMapping[str, str], timeout: float) -> "StoreClient":
    """As another launcher has started the ranks: the store is in rank 0."""
    from .network.interfaces import from_environment as network_of
    from .rendezvous.ways import find_rendezvous

    network = network_of(environment)
    job = _process.job
    if job.rendezvous is None:
        _process.given = secret.take(environment) or _process.given
        carrier = _carrier(identity, environment, timeout)
        job.rendezvous = find_rendezvous(identity, environment, network, _process.given, timeout, carrier)
        if identity.rank == 0 and job.rendezvous.way:
            log("info", 0, f"the ranks meet at {job.rendezvous.address}: {job.rendezvous.way}")
    rendezvous = job.rendezvous
    store = rendezvous.client(job.generation, timeout)
    try:
        if job.secret is None:
            job.secret = rendezvous.job_secret(store, timeout)
            if job.comm is None:  # a process has one RANK, and may be in several communicators
                rendezvous.export(store, network, environment, timeout)
    except BaseException:
        store.close()
        raise
    return store


def _carrier(identity: Identity, environment: MutableMapping[str, str], timeout: float) -> "Carrier | None":
    """What the program or its environment gives to carry the job's address and secret."""
    if _process.job.comm is not None:
        from .communicator import carrier_of

        return carrier_of(_process.job.comm, identity, timeout)
    if controller.is_mpi(environment):
        return controller.MpiCarrier(identity.rank, environment, timeout)
    return None


def _warn_of_variables(identity: Identity, environment: MutableMapping[str, str], bad: Sequence[str]) -> None:
    """Once in a job, at its first start: of unknown ones; once on each host of values that mean nothing."""
    if identity.local_rank == 0:
        for text in bad:
            log("warning", identity.rank, f"{text}; it is ignored")
    if identity.rank == 0 and _process.starts == 0:
        from horovod import _core

        variables.warn_of_unknown(environment, [row[0] for row in _core.settings()])


def _take_secret(environment: MutableMapping[str, str]) -> bytes:
    """The job's secret: taken out of the environment, where children would find it, then from memory."""
    job = _process.all_ranks
    job.secret = secret.take(environment) or job.secret or _process.given
    if job.secret is None:
        raise ValueError(
            f"{secret.FILE_VARIABLE} is not set: only a process that horovodrun started can become a rank, "
            "and a rank takes the way to the secret out of its environment, so that its children cannot"
        )
    return job.secret


def _leave_parent() -> None:
    """Runs in a forked child: it holds copies of the parent's descriptors, but it is not the rank."""
    if _process.starts and not _process.forked_from:
        _process.forked_from = _process.pid
    _process.started = False
    if _process.on_demand is not None:
        _process.on_demand.close_in_child()
    _process.on_demand = None
    _process.all_ranks.secret = _process.job.secret = None
    _process.own = os.urandom(SECRET_BYTES)  # several children are jobs of their own


os.register_at_fork(after_in_child=_leave_parent)
