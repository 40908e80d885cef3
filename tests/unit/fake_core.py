"""A stand-in for the compiled core: one process that plays a job of ``size`` ranks, with torch doing the
arithmetic.

The other ranks send what ``peers`` says, by default what this rank sends. An operation runs when it is waited
for or polled, as late as the contract allows, so that a caller who reads too early or frees too early is
found out.
"""

import ctypes
import sys
import types
from dataclasses import dataclass, field

import torch

NAMES = [
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
    "bfloat16",
]
NAMES += ["uint32", "uint64"]
ALLREDUCE, ALLGATHER, BROADCAST, BARRIER = range(4)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)


class Output:
    """What the core allocated."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def shape(self):
        return tuple(self.tensor.shape)

    @property
    def dtype(self):
        return NAMES.index(str(self.tensor.dtype).removeprefix("torch."))

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


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
    complete: bool = False
    outputs: list | None = None
    error: Exception | None = None


def view(address, dtype, shape):
    """The memory at ``address`` as a tensor."""
    torch_dtype = getattr(torch, NAMES[dtype])
    count = 1
    for dim in shape:
        count *= dim
    if count == 0:
        return torch.empty(tuple(shape), dtype=torch_dtype)
    data = (ctypes.c_char * (count * torch_dtype.itemsize)).from_address(address)
    return torch.frombuffer(data, dtype=torch_dtype).reshape(tuple(shape))


def reduced(inputs, op, prescale, postscale):
    """The result of an allreduce, in float64 or int64."""
    wide = torch.float64 if inputs[0].is_floating_point() else torch.int64
    stack = torch.stack([tensor.to(wide) * prescale for tensor in inputs])
    if op in (AVERAGE, SUM):
        total = stack.sum(0)
        if op == AVERAGE:
            total = total / len(inputs) if wide.is_floating_point else (total / len(inputs)).trunc()
    else:
        total = {MIN: torch.amin, MAX: torch.amax, PRODUCT: torch.prod}[op](stack, 0)
    return total * postscale


@dataclass
class FakeCore:
    """The functions of ``horovod._core``."""

    up: bool = False
    size: int = 1
    rank: int = 0
    peers: object = None  # callable(request, own inputs) -> for each rank the list of its inputs
    refuse: object = None  # callable(request) that may raise at submission
    requests: list = field(default_factory=list)  # everything ever submitted
    pending: dict = field(default_factory=dict)
    timeline: list = field(default_factory=list)

    def is_initialized(self):
        return self.up

    def topology(self):
        if not self.up:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return (self.rank, self.size, self.rank, self.size, 0, 1)

    def submit(self, kind, name, tensors, op=1, prescale=1.0, postscale=1.0, root=0, process_set=0):
        if not self.up:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        tensors = [(int(a), int(b), int(dtype), tuple(map(int, shape))) for a, b, dtype, shape in tensors]
        request = Request(kind, name, tensors, op, prescale, postscale, root)
        if name is not None and any(r.name == name and not r.complete for r in self.pending.values()):
            raise ValueError(f"{name} is in flight already")
        if self.refuse is not None:
            self.refuse(request)
        handle = len(self.requests)
        self.requests.append(request)
        self.pending[handle] = request
        return handle

    def wait(self, handle, timeout=None):
        request = self.pending.get(handle)
        if request is None:
            raise ValueError(f"unknown handle {handle}")
        self._complete(request)
        del self.pending[handle]
        if request.error is not None:
            raise request.error
        return request.outputs

    def poll(self, handle):
        request = self.pending.get(handle)
        return request is None or request.complete

    def run(self, kind, name, tensors, op=1, prescale=1.0, postscale=1.0, root=0, process_set=0, keep=None):
        return self.wait(self.submit(kind, name, tensors, op, prescale, postscale, root, process_set))

    def progress(self):
        """Lets everything submitted so far complete."""
        for request in self.pending.values():
            self._complete(request)

    def counters(self):
        return {"collectives": len(self.requests)}

    def settings(self):
        return [("HOROVOD_CYCLE_TIME", "float", "1.0", "milliseconds")]

    def start_timeline(self, path, mark_cycles=False):
        self.timeline.append((path, mark_cycles))

    def stop_timeline(self):
        self.timeline.append(None)

    def _complete(self, request):
        if request.complete:
            return
        request.complete = True
        own = [view(address, dtype, shape).clone() for address, _, dtype, shape in request.tensors]
        ranks = [own] * self.size if self.peers is None else self.peers(request, own)
        results = []
        for index, tensor in enumerate(own):
            inputs = [inputs_of_rank[index] for inputs_of_rank in ranks]
            if request.kind == ALLREDUCE:
                result = reduced(inputs, request.op, request.prescale, request.postscale).to(tensor.dtype)
            elif request.kind == BROADCAST:
                result = inputs[request.root]
            else:
                result = torch.cat(inputs)
            results.append(result)
        if request.kind == ALLGATHER:
            request.outputs = [Output(result) for result in results]
            return
        for (_, address, dtype, shape), result in zip(request.tensors, results, strict=True):
            view(address, dtype, shape).copy_(result)


def install():
    """Makes ``import horovod._core`` work where nothing was compiled."""
    try:
        import horovod._core
    except ImportError:
        fake = types.ModuleType("horovod._core")
        constants = {"ALLREDUCE": 0, "ALLGATHER": 1, "BROADCAST": 2, "BARRIER": 3, "Output": Output}
        fake.__dict__.update(constants, DTYPES={name: number for number, name in enumerate(NAMES)})
        idle = FakeCore()
        for function in (
            "is_initialized",
            "topology",
            "submit",
            "wait",
            "poll",
            "run",
            "counters",
            "settings",
        ):
            setattr(fake, function, getattr(idle, function))
        sys.modules["horovod._core"] = fake
        import horovod

        horovod._core = fake


install()


def play(monkeypatch):
    """Puts a fake core under every module of ``horovod.common`` until resumed."""
    import horovod.torch  # noqa: F401
    from horovod.torch.operations import ops

    fake = FakeCore(up=True)
    for number, name in enumerate(("ALLREDUCE", "ALLGATHER", "BROADCAST", "BARRIER")):
        setattr(fake, name, number)
    for name, module in list(sys.modules.items()):
        if name.startswith("horovod.common.") and hasattr(module, "_core"):
            monkeypatch.setattr(module, "_core", fake)
    yield fake
    fake.progress()
    ops.reset()
