"""A job whose ranks are threads of one process: the functions of ``horovod._core``, each rank seeing its own.

An operation is carried out when the last member has submitted it. Members that have joined take part with
nothing in an allgather and with zeros in an allreduce.
"""

import functools
import operator
import threading
from contextlib import contextmanager

import torch
from fake_core import HOST_DEVICE, Output, Request, deliver, described, entered, next_handle, put_under_common
from fake_results import ALLGATHER, ALLREDUCE, JOIN, outcome, view

from horovod.common import process_sets
from horovod.common.exceptions import Notice, TensorMismatchError

PATIENCE = 300  # only a hang takes so long, also on a busy machine where torch is imported late


class PerThread:
    """A dictionary (or lock) of which every thread has its own."""

    def __init__(self, make):
        self._make, self._local = make, threading.local()

    def _own(self):
        if not hasattr(self._local, "value"):
            self._local.value = self._make()
        return self._local.value

    def __getattr__(self, name):
        return getattr(self._own(), name)

    def __enter__(self):
        return self._own().__enter__()

    def __exit__(self, *error):
        return self._own().__exit__(*error)

    def __setitem__(self, key, value):
        self._own()[key] = value

    def __delitem__(self, key):
        del self._own()[key]

    def __iter__(self):
        return iter(self._own())


class FakeJob:
    """The functions of ``horovod._core`` for ``size`` ranks; ``run`` starts the ranks."""

    def __init__(self, size):
        self.size = size
        self.local = threading.local()
        self.news = threading.Condition()
        self.members = {0: list(range(size))}
        self.handles = {}  # handle -> (rank, request)
        self.waiting = {}  # (set, name) -> {rank: request}
        self.unnamed = {}  # (set, rank) -> count
        self.joined = {}  # set -> {rank: request}, in the order of joining
        self.barriers = {}  # what add_process_set and remove_process_set wait for
        self.log = []  # (rank, request) of all operations

    def run(self, function):
        """Calls ``function(rank)`` on all ranks. Returns the results, or raises the first rank's error."""
        results, errors = [None] * self.size, [None] * self.size

        def call(rank):
            self.local.rank = rank
            try:
                results[rank] = function(rank)
            except BaseException as error:
                errors[rank] = error

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a rank hangs"
        for error in errors:
            if error is not None:
                raise error
        return results

    def is_initialized(self):
        return True

    def has_topology(self):
        return self.is_initialized()

    def check_running(self):
        if not self.is_initialized():
            raise ValueError("Horovod has not been initialized; use hvd.init().")

    def topology(self):
        self.check_running()
        return (self.local.rank, self.size, self.local.rank, self.size, 0, 1)

    def submit(
        self,
        kind,
        name,
        tensors,
        op=1,
        prescale=1.0,
        postscale=1.0,
        root=0,
        process_set=0,
        keep=None,
        splits=None,
        sampled=False,
        device=HOST_DEVICE,
        stream=0,
        ready_event=0,
        tag=0,
        notice=0,
    ):
        rank = self.local.rank
        if rank not in self.members[process_set]:
            raise ValueError(f"rank {rank} is not part of process set {process_set}")
        tensors = [described(*tensor) for tensor in tensors]
        request = Request(kind, name, tensors, op, prescale, postscale, root, process_set, splits)
        request.notice = notice
        with self.news:
            handle = next_handle()
            self.handles[handle] = (rank, request)
            self.log.append((rank, request))
            if kind == JOIN:
                self._join(rank, request)
            else:
                self._announce(rank, request)
            self.news.notify_all()
        return handle

    def submit_for(self, handle_type, entry, *arguments, **more):
        return entered(handle_type, self.submit(*arguments, **more), entry)

    def abandon(self, handle):
        pass

    def forget(self, handle, entries=None):
        if entries is not None:
            entries.pop(handle, None)

    def wait(self, handle, timeout=None):
        rank, request = self.handles[handle]
        assert rank == self.local.rank, "a handle of another rank"
        with self.news:
            if not self.news.wait_for(lambda: request.complete, PATIENCE if timeout is None else timeout):
                assert timeout is not None, f"{request} never becomes complete"
                raise TimeoutError("not complete")
        if request.error is not None:
            raise request.error
        return request.outputs

    def poll(self, handle):
        return handle not in self.handles or self.handles[handle][1].complete

    def changed(self, handle):
        return False

    def run_(self, *arguments, **more):
        return self.wait(self.submit(*arguments, **more))

    def in_flight(self, process_set):
        requests = [r for rank, r in self.handles.values() if rank == self.local.rank]
        return [r.name for r in requests if r.process_set == process_set and not r.complete]

    def counters(self):
        mine = [rank for rank, _ in self.log if rank == self.local.rank]
        names = ("cache_misses", "collectives", "messages", "reductions", "responses")
        return {"cache_hits": 0, **dict.fromkeys(names, len(mine))}

    def add_process_set(self, ranks):
        with self._met(("add", tuple(ranks))) as first:
            if first:
                self.members[max(self.members) + 1] = list(ranks)
        return max(number for number, known in self.members.items() if known == list(ranks))

    def remove_process_set(self, process_set):
        with self._met(("remove", process_set)) as first:
            if first:
                self.members[process_set] = []

    @contextmanager
    def _met(self, what):
        """Yields, once all ranks are here, whether this is the first to go on."""
        with self.news:
            barrier = self.barriers.setdefault(what, threading.Barrier(self.size, timeout=PATIENCE))
        index = barrier.wait()
        yield index == 0
        barrier.wait()
        with self.news:
            self.barriers.pop(what, None)

    def _join(self, rank, request):
        number = request.process_set
        joined = self.joined.setdefault(number, {})
        joined[rank] = request
        for key in [key for key in self.waiting if key[0] == number]:
            self._carry_out_if_ready(key)
        if len(joined) == len(self.members[number]):
            for other in joined.values():
                other.outputs = [Output(torch.tensor([rank]))]
                other.complete = True
            self.joined[number] = {}
            for member in self.members[number]:
                self.unnamed.pop((number, member), None)

    def _announce(self, rank, request):
        number, name = request.process_set, request.name
        if name is None:
            self.unnamed[number, rank] = name = self.unnamed.get((number, rank), 0) + 1
        key = (number, name)
        assert rank not in self.waiting.setdefault(key, {}), f"{name} is in flight already"
        self.waiting[key][rank] = request
        self._carry_out_if_ready(key)

    def _carry_out_if_ready(self, key):
        requests, joined = self.waiting[key], self.joined.get(key[0], {})
        members = self.members[key[0]]
        if {*requests, *joined} != set(members):
            return
        del self.waiting[key]
        kinds = {(r.kind, r.op, r.prescale, r.postscale, r.root, len(r.tensors)) for r in requests.values()}
        told = functools.reduce(operator.or_, [request.notice or 1 for request in requests.values()])
        if told > 1:
            for request in requests.values():
                request.error, request.complete = Notice(told), True
            return
        present = [rank for rank in members if rank in requests]
        inputs = [[view(a, d, s).clone() for a, _, d, s in requests[rank].tensors] for rank in present]
        for position, rank in enumerate(present):
            request = requests[rank]
            if len(kinds) > 1:
                request.error = TensorMismatchError(f"the ranks disagree about {key[1]}")
            elif request.tensors:
                root = present.index(request.root) if request.root in present else 0
                splits = [requests[other].splits for other in present]
                absent = [[torch.zeros_like(t) for t in inputs[position]]] * (len(members) - len(present))
                given = inputs + (absent if request.kind == ALLREDUCE else [])
                assert not absent or request.kind in (ALLREDUCE, ALLGATHER)
                deliver(request, outcome(request, position, given, splits, root))
            request.complete = True


def play_job(monkeypatch, size):
    """A job of ``size`` ranks under ``horovod.common``."""
    job = FakeJob(size)
    put_under_common(monkeypatch, job)
    job.run_all, job.run = job.run, job.run_  # the name `run` is the core's
    monkeypatch.setattr(process_sets, "_registered", PerThread(dict))
    monkeypatch.setattr(process_sets, "_lock", PerThread(threading.RLock))
    monkeypatch.setattr(process_sets.global_process_set, "ranks", list(range(size)))
    return job
