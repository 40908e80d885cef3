"""A job whose ranks are actors, the same from its start to its end."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError

from horovod.bootstrap.start_settings import START_TIMEOUT_VARIABLE, STORE_VARIABLE
from horovod.bootstrap.store.verdicts import Kind, Verdict
from horovod.runner.hosts import Host, Placement, allocate
from horovod.runner.nodes.rank_process import rank_environment
from horovod.runner.report import Process

from . import ray_logger
from .failures import failure_of, is_told
from .listener import Listener
from .meeting import Meeting, new_meeting
from .nodes import names_of
from .strategy import Strategy
from .worker import BaseHorovodWorker, Whereabouts

Callbacks = Sequence[Callable[[Any], Any]]

_LOOK_SECONDS = 0.05
_TELL_SECONDS = 1.0  # until the first cause of a failure must be known
_LEAVE_SECONDS = 1.0
_GPUS = "CUDA_VISIBLE_DEVICES"


class StaticJob:
    """The actors of one executor. ``workers`` are in the order of their ranks."""

    def __init__(self, strategy: Strategy, variables: Mapping[str, str], start_seconds: float) -> None:
        """``variables`` are those that the user gives to all ranks."""
        self.strategy = strategy
        self.workers: list[Any] = []
        self._variables = {START_TIMEOUT_VARIABLE: f"{start_seconds:g}", **variables}
        self._calling = threading.Lock()  # ranks get the calls of several threads in one order
        self._processes: dict[int, Process] = {}
        self._meeting: Meeting | None = None
        self._listener: Listener | None = None

    def start(self, executable_cls: type | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Starts the ranks. Raises TimeoutError where there is no room for them."""
        self.strategy.place()
        actors = self.workers = self.strategy.create(BaseHorovodWorker)
        meeting = self._meeting = new_meeting(len(actors), self._variables)
        self._listener = Listener(meeting)
        asked = [actor.whereabouts.remote() for actor in actors]
        self.strategy.wait_for(asked)
        found = ray.get(asked)
        order = by_node([where.node for where in found])
        self.workers, places = [actors[n] for n in order], [found[n] for n in order]
        placements = placed(places)
        pids = {rank: place.pid for rank, place in enumerate(places)}
        self._processes = {place.rank: Process(place.host, pids[place.rank]) for place in placements}
        address, secret = meeting.terms()
        master = {"MASTER_ADDR": places[0].address, "MASTER_PORT": str(places[0].port)}
        common = {**master, **self._variables, STORE_VARIABLE: address}
        own = [
            {**_variables_of(place, len(actors), common), **_gpus(places[place.rank], places)}
            for place in placements
        ]
        self._wait([w.join.remote(each, secret) for w, each in zip(self.workers, own, strict=True)])
        if executable_cls is not None:
            given = executable_cls, args, kwargs
            self._wait([worker.start_executable.remote(*given) for worker in self.workers])

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any, callbacks: Callbacks) -> list[Any]:
        """What the function returns on each rank."""
        return self._wait(self.run_remote(function, args, kwargs), callbacks)

    def run_remote(self, function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
        """References to it."""
        called = ray.put((function, args or (), kwargs or {}))
        with self._calling:
            return [worker.call.remote(called) for worker in self.workers]

    def execute(self, function: Callable[[Any], Any], callbacks: Callbacks) -> list[Any]:
        """What the function returns for the executable of each rank."""
        put = ray.put(function)
        with self._calling:
            references = [worker.execute.remote(put) for worker in self.workers]
        return self._wait(references, callbacks)

    def execute_single(self, function: Callable[[Any], Any]) -> Any:
        """What it returns for that of rank 0."""
        return self._wait([self.workers[0].execute.remote(function)])[0]

    def shutdown(self) -> None:
        """Ends the ranks. Idempotent."""
        workers, self.workers = self.workers, []
        meeting, self._meeting, self._listener = self._meeting, None, None
        try:
            if ray.is_initialized():  # otherwise all is gone, and Ray would start a cluster to be asked
                leaving = [worker.leave.remote() for worker in workers]
                if leaving:
                    ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_SECONDS)
                for worker in workers:
                    ray.kill(worker)
                self.strategy.shutdown()
        finally:
            if meeting is not None:
                meeting.close()

    def _wait(self, references: Sequence[Any], callbacks: Callbacks = ()) -> list[Any]:
        """The values, in the order of the ranks. Raises the first cause as soon as a rank fails."""
        assert self._listener is not None
        ranks = {reference: rank for rank, reference in enumerate(references)}
        waiting, values, errors = list(references), {}, {}
        self._listener.has_verdict.clear()
        failed_at = float("inf")
        while waiting:
            done, waiting = ray.wait(waiting, timeout=_LOOK_SECONDS, fetch_local=False)
            for reference in done:
                try:
                    values[ranks[reference]] = ray.get(reference)
                except Exception as error:
                    errors[ranks[reference]] = error
            self._call(callbacks)
            if errors or self._has_lost_one():
                failed_at = min(failed_at, time.monotonic())
                if is_told(errors, self._verdicts()) or time.monotonic() > failed_at + _TELL_SECONDS:
                    break
        self._listener.catch_up()
        self._call(callbacks)
        if errors or waiting:
            threading.Thread(target=_take_all, args=[waiting], name="hvd-ray-rest", daemon=True).start()
            dead = [rank for rank, error in errors.items() if isinstance(error, RayActorError)]
            raise failure_of(errors, self._verdicts(dead), self._processes, self._listener.tails)
        return [values[rank] for rank in range(len(references))]

    def _has_lost_one(self) -> bool:
        """Whether ranks miss one of which Ray may not know yet. One that has left the job tells why itself,
        and may have left in an earlier call, in which others still are.
        """
        assert self._listener is not None
        is_said = self._listener.has_verdict.is_set()
        return is_said and any(verdict.kind is not Kind.LEFT for verdict in self._verdicts())

    def _verdicts(self, dead: Sequence[int] = ()) -> Sequence[Verdict]:
        assert self._meeting is not None
        return self._meeting.verdicts(dead, _TELL_SECONDS)

    def _call(self, callbacks: Callbacks) -> None:
        assert self._listener is not None
        while self._listener.logged:
            ray_logger.hand_over(self._listener.logged.popleft(), callbacks)


def _take_all(references: Sequence[Any]) -> None:
    """Ray complains of errors that nobody takes."""
    for reference in references:
        with contextlib.suppress(Exception):
            ray.get(reference)


def by_node(nodes: Sequence[str]) -> list[int]:
    """The numbers of actors in the order of their ranks, those of a node together: the first one's first."""
    first = {node: number for number, node in reversed(list(enumerate(nodes)))}
    return sorted(range(len(nodes)), key=lambda number: (first[nodes[number]], number))


def placed(places: Sequence[Whereabouts]) -> list[Placement]:
    """The positions of ranks that are on these places."""
    names = names_of({place.node: place.hostname for place in places})
    counts = Counter(names[place.node] for place in places)
    return allocate([Host(name, count) for name, count in counts.items()], len(places))


def _variables_of(place: Placement, size: int, common: Mapping[str, str]) -> dict[str, str]:
    """Ray has told each actor already how many threads it may have."""
    variables = rank_environment(common, place, size)
    return {n: value for n, value in variables.items() if n in common or not n.startswith(("OMP_", "PYTHON"))}


def _gpus(own: Whereabouts, places: Sequence[Whereabouts]) -> dict[str, str]:
    """Every rank of a node sees all GPUs that the job has there: it picks one by its local rank."""
    found = [gpu for place in places if place.node == own.node for gpu in place.gpus]
    return {_GPUS: ",".join(dict.fromkeys(found))} if found else {}
