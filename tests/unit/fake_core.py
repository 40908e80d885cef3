"""A stand-in for the compiled core: one process that plays a job of ``size`` ranks, with torch doing the
arithmetic.

The other ranks send what ``peers`` says, by default what this rank sends. An operation runs when it is waited
for or polled, as late as the contract allows, so that a caller who reads too early or frees too early is
found out.
"""

import itertools
import math
import sys
import types
import weakref
from dataclasses import dataclass, field

import torch
from fake_results import (
    ALLGATHER,
    ALLTOALL,
    JOIN,
    KINDS,
    NAMES,
    RECV,
    REDUCESCATTER,
    SEND,
    outcome,
    view,
)

from horovod.common.exceptions import Notice

_handles = itertools.count(1000)  # never given twice, as by the real core
HOST_DEVICE, STAGED_DEVICE = -1, -2


def next_handle():
    """The number of one more operation."""
    return next(_handles)


class Output:
    """What the core allocated. ``followers``: the streams that wait for it, on a GPU."""

    def __init__(self, tensor, device=HOST_DEVICE):
        self.tensor = tensor
        self.device = device
        self.followers = []

    def follow(self, stream):
        self.followers.append(stream)

    @property
    def shape(self):
        return tuple(self.tensor.shape)

    @property
    def dtype(self):
        return NAMES.index(str(self.tensor.dtype).removeprefix("torch."))

    def tobytes(self):
        return bytes(self.tensor.contiguous().view(torch.uint8).tolist())

    def __dlpack__(self, **kwargs):
        floats_as_bytes = self.tensor.is_floating_point() and self.tensor.element_size() == 1
        return (self.tensor.view(torch.uint8) if floats_as_bytes else self.tensor).__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def entered(handle_type, number, entry):
    if isinstance(handle_type, dict):
        handle_type[number] = entry
        return number
    handle_type.entries[number] = entry
    return handle_type(number)


@dataclass
class Request:
    """One submitted operation."""

    kind: int
    name: str | None
    tensors: list
    op: int
    prescale: float
    postscale: float
    root: int
    process_set: int = 0
    splits: list | None = None
    complete: bool = False
    outputs: list | None = None
    error: Exception | None = None
    left: list | None = None  # what the outputs were when the operation was complete
    device: int = HOST_DEVICE
    stream: int = 0
    ready_event: int = 0
    tag: int = 0
    notice: int = 0


def described(given, wanted, dtype, shape, given_bytes, wanted_bytes):
    """A tensor of a request; its lengths must be what the real core demands."""
    shape = tuple(map(int, shape))
    size = getattr(torch, NAMES[dtype]).itemsize * math.prod(shape)
    if given_bytes != size or (wanted and wanted_bytes != size):
        raise ValueError(f"{shape} takes {size} bytes, not {given_bytes} and {wanted_bytes}")
    return int(given), int(wanted), int(dtype), shape


def contents(request):
    """The bytes of all outputs that the caller has given."""
    outputs = [view(output, dtype, shape) for _, output, dtype, shape in request.tensors if output]
    return [bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) for tensor in outputs]


def deliver(request, results):
    """Puts results where the request wants them."""
    if request.kind in (ALLGATHER, ALLTOALL, REDUCESCATTER):
        device = max(request.device, HOST_DEVICE)
        request.outputs = [Output(result, device) for result in results]
        if request.kind == ALLTOALL:  # how many rows came is said in host memory
            request.outputs[1].device = HOST_DEVICE
        return
    for (_, address, dtype, shape), result in zip(request.tensors, results, strict=True):
        view(address, dtype, shape).copy_(result)
    request.outputs = [Output(None, request.device) for _ in results] if request.device >= 0 else None


@dataclass
class FakeCore:
    """The functions of ``horovod._core``."""

    up: bool = False
    size: int = 1
    rank: int = 0
    peers: object = None  # callable(request, own inputs) -> for each rank the list of its inputs
    peer_splits: object = None  # for each rank its splits; None: all those of this rank
    refuse: object = None  # callable(request) that may raise at submission
    requests: list = field(default_factory=list)  # everything ever submitted, but for the reserved names
    reserved: list = field(default_factory=list)  # what the library agrees on by itself
    pending: dict = field(default_factory=dict)
    timeline: list = field(default_factory=list)
    shown: int = 0  # how often the stacks were asked for
    sets: list = field(default_factory=list)  # the ranks of process set 1, 2, ...
    messages: list = field(default_factory=list)  # that were sent and not received: each comes back here
    on_gpu: object = None  # callable(kind, dtype, op, prescale, postscale): what runs on GPUs; None: nothing

    def is_initialized(self):
        return self.up

    def has_topology(self):
        return self.up

    def check_running(self):
        if not self.up:
            raise ValueError("Horovod has not been initialized; use hvd.init().")

    def topology(self):
        self.check_running()
        return (self.rank, self.size, self.rank, self.size, 0, 1)

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
        if not self.up:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        tensors = [described(*tensor) for tensor in tensors]
        request = Request(kind, name, tensors, op, prescale, postscale, root, process_set, splits)
        if name is not None and any(r.name == name and not r.complete for r in self.pending.values()):
            raise ValueError(f"{name} is in flight already")
        if self.refuse is not None:
            self.refuse(request)
        reserved = name is not None and (name.startswith("horovod.") or ": comparison" in name)
        (self.reserved if reserved else self.requests).append(request)
        handle = next_handle()
        self.pending[handle] = request
        request.device, request.stream, request.ready_event = device, stream, ready_event
        request.tag, request.notice = tag, notice
        return handle

    def submit_for(self, handle_type, entry, *arguments, **more):
        number = self.submit(*arguments, **more)
        return entered(handle_type, number, entry)

    def abandon(self, handle):
        pass

    def name_of(self, handle):
        return self.pending[handle].name or f"noname.{handle}"

    def wait(self, handle, timeout=None):
        request = self.pending.get(handle)
        if request is None:
            raise ValueError(f"unknown handle {handle}")
        self._complete(request)
        if request.error is not None:
            raise request.error
        return request.outputs

    def forget(self, handle, entries=None):
        if entries is not None:
            entries.pop(handle, None)
        self.pending.pop(handle, None)

    def poll(self, handle):
        request = self.pending.get(handle)
        return request is None or request.complete

    def changed(self, handle):
        request = self.pending.get(handle)
        return request is not None and request.complete and request.left != contents(request)

    def run(self, *given, **named):
        return self.wait(self.submit(*given, **named))

    def gpu_serves(self, kind, dtype, op, prescale, postscale):
        return self.on_gpu is not None and self.on_gpu(kind, dtype, op, prescale, postscale)

    def add_process_set(self, ranks):
        self.sets.append(list(ranks))
        return len(self.sets)

    def add_own_process_set(self, ranks, timeout):
        return self.add_process_set(ranks)

    def leave_process_set(self, process_set):
        self.sets[process_set - 1] = None

    def remove_process_set(self, process_set):
        self.sets[process_set - 1] = None

    def in_flight(self, process_set):
        return [r.name for r in self.pending.values() if r.process_set == process_set and not r.complete]

    def progress(self):
        """Lets everything submitted so far complete."""
        for request in self.pending.values():
            self._complete(request)

    def counters(self):
        names = ("cache_misses", "collectives", "messages", "reductions", "responses", "waited_us")
        return {"cache_hits": 0, **dict.fromkeys(names, len(self.requests))}

    def settings(self):
        return [("HOROVOD_CYCLE_TIME", "float", "1.0", "milliseconds")]

    def check_setting(self, variable, value):
        pass

    def check_health(self):
        self.check_running()

    def shared_file_bytes(self, ranks):
        return 1 << 20

    def describer(self, exchange, types, otherwise):
        return otherwise

    def handle_type(self, entries, dropped):
        def note(handle):
            if handle in entries:
                dropped.append(int(handle))

        return type("Handle", (int,), {"__slots__": (), "__del__": note, "entries": entries})

    def acquire_api(self):
        raise AssertionError("native code needs the real core")

    def show_stacks(self):
        self.shown += 1

    def await_stacks_request(self, signal=0):
        return False

    def start_timeline(self, path, mark_cycles=False):
        self.timeline.append((path, mark_cycles))

    def stop_timeline(self):
        self.timeline.append(None)

    def _complete(self, request):
        if request.complete:
            return
        request.complete = True
        if request.notice:  # of all ranks
            request.error = Notice(request.notice)
            return
        own = [view(address, dtype, shape).clone() for address, _, dtype, shape in request.tensors]
        if request.kind in (SEND, RECV):
            self._complete_message(request, own)
            return
        ranks = [own] * self.size if self.peers is None else self.peers(request, own)
        if request.kind == JOIN:
            request.outputs = [Output(torch.tensor([self.size - 1]))]
            return
        splits = self.peer_splits or [request.splits] * self.size
        deliver(request, outcome(request, self.rank, ranks, splits, request.root))
        request.left = contents(request)

    def _complete_message(self, request, own):
        """Whoever this rank sends to sends it back."""
        key = (request.process_set, request.tag)
        if request.kind == SEND:
            self.messages.append((key, request.root, own[0]))
            return
        fitting = [message for message in self.messages if message[0] == key]
        found = next(message for message in fitting if request.root in (-1, message[1]))
        self.messages = [message for message in self.messages if message is not found]
        (_, address, dtype, shape) = request.tensors[0]
        view(address, dtype, shape).copy_(found[2])
        request.outputs = [Output(torch.tensor([found[1]]))]


def install():
    """Makes ``import horovod._core`` work where nothing was compiled."""
    try:
        import horovod._core
    except ImportError:
        fake = types.ModuleType("horovod._core")
        fake.__dict__.update(zip(KINDS, range(len(KINDS)), strict=True), Output=Output)
        fake.HOST_DEVICE, fake.STAGED_DEVICE = HOST_DEVICE, STAGED_DEVICE
        fake.DTYPES = {name: number for number, name in enumerate(NAMES)}
        idle = FakeCore()
        for function in (
            "is_initialized",
            "has_topology",
            "check_running",
            "topology",
            "submit",
            "submit_for",
            "wait",
            "poll",
            "changed",
            "gpu_serves",
            "run",
            "counters",
            "settings",
            "handle_type",
        ):
            setattr(fake, function, getattr(idle, function))
        sys.modules["horovod._core"] = fake
        import horovod

        horovod._core = fake


install()


def put_under_common(monkeypatch, fake):
    """Makes ``fake`` the core of every module of ``horovod.common``."""
    import horovod.torch  # noqa: F401
    from horovod.common.training import agreement

    monkeypatch.setattr(agreement, "_counts", weakref.WeakKeyDictionary())
    fake.DTYPES = {name: number for number, name in enumerate(NAMES)}
    fake.HOST_DEVICE, fake.STAGED_DEVICE = HOST_DEVICE, STAGED_DEVICE
    for number, name in enumerate(KINDS):
        setattr(fake, name, number)
    for name, module in sys.modules.copy().items():
        if name.startswith("horovod.common.") and hasattr(module, "_core"):
            monkeypatch.setattr(module, "_core", fake)


def play(monkeypatch):
    """Puts a fake core under every module of ``horovod.common`` until resumed."""
    fake = FakeCore(up=True)
    put_under_common(monkeypatch, fake)
    from horovod.torch.operations import ops

    yield fake
    fake.progress()
    ops.reset()
    ops.reset_in_child()
