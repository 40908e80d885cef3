"""The compiled core. One engine per process; every function is thread safe and releases the GIL while
it waits.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

__version__: str

# OpKind
ALLREDUCE: int
ALLGATHER: int
BROADCAST: int
BARRIER: int
ALLTOALL: int
REDUCESCATTER: int
JOIN: int

# Messages between two ranks, which nobody negotiates
SEND: int
RECV: int

# DataType, by the names that numpy uses: {"uint8": 0, ...}
DTYPES: dict[str, int]

# Where tensors are that are not on a GPU
HOST_DEVICE: int
STAGED_DEVICE: int

# LinkRole
LINK_WATCH: int
LINK_CONTROL: int
LINK_DATA: int

class Output:
    """A tensor that the core allocated (C-contiguous). Owns its memory; adopt it by DLPack without a copy.
    Of a tensor on a GPU whose output was given: nothing but when that is there.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> int: ...
    @property
    def device(self) -> int:
        """The number of the GPU that it is on; HOST_DEVICE for host memory."""

    def tobytes(self) -> bytes:
        """A copy of the elements, in the machine's byte order, of a tensor in host memory."""

    def follow(self, stream: int) -> None:
        """Of one on a GPU: has a CUstream of it wait for the operation, so that what it is given from now on
        finds the result. What the core has allocated is freed behind the work of that stream, once nobody
        refers to it. Raises TimeoutError where the stream captures a graph, which cannot wait.
        """

    def __dlpack__(self, **kwargs: Any) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class EngineOptions:
    """How the engine starts.

    ``wiring`` is "shm" (shared memory within a host, for which there are share links along a binomial tree
    of its ranks) or "tcp" (links alone). ``hosts``: for each rank a number that those of its host have in
    common; empty: one host. ``host_names``, in the order of the hosts' first ranks, are for messages. Between
    hosts, and with "tcp" between all, control and data go over links: those that are missing are asked for
    when they are first used (``take_link_requests``) if ``links_on_demand``, else that is an error. After
    ``start_seconds`` the start is given up (0: after HOROVOD_START_TIMEOUT). ``library``: the file of a
    module for a library that carries out collectives (empty: our own do), and ``address`` where that of the
    other ranks reaches this one. ``gpu_driver``: the file of the CUDA driver (or libamdhip64.so), and
    ``gpu_library`` that of NCCL (or RCCL), as on all ranks or on none; they are loaded at the first operation
    on a GPU. Empty: no operation runs there.
    """

    generation: int
    wiring: str
    start_seconds: float
    hosts: Sequence[int]
    host_names: Sequence[str]
    library: str
    address: str
    gpu_driver: str
    gpu_library: str
    links_on_demand: bool

def init(
    identity: tuple[int, int, int, int, int, int],
    links: Sequence[tuple[int, int, int, bytes, bytes]],
    launcher: tuple[int, bytes, int] | None,
    options: EngineOptions,
) -> None:
    """Starts the engine; ``identity`` is as of ``topology``. A link is (fd, peer, role, send_key, recv_key),
    keys of 32 bytes; the core owns the descriptors from the call on, also when it fails. There are watch
    links to every peer, or to so many that news reach all over them. ``launcher``: a connected socket whose
    end of file means that the launcher is gone, or a pidfd of it; the key (32 bytes) that seals what this
    rank tells the launcher over it, why the engine gave up; and how many frames were sealed so before.
    Settings (HOROVOD_*) are read from the environment once, here.
    """

def shutdown() -> None:
    """Says goodbye to the peers, fails what is outstanding, joins all threads, frees everything.
    Idempotent.
    """

def is_initialized() -> bool: ...
def has_topology() -> bool:
    """Whether ``topology`` has an answer: in a rank, and in a child that was forked from one."""

def check_running() -> None:
    """Raises ValueError, which says why and what to do, unless this process is a rank."""

def check_health() -> None:
    """Likewise, and HorovodInternalError, which says why, once the job has failed."""

def topology() -> tuple[int, int, int, int, int, int]:
    """(rank, size, local_rank, local_size, cross_rank, cross_size); ValueError before init."""

def submit(
    kind: int,
    name: str | None,
    tensors: Sequence[tuple[int, int, int, Sequence[int], int, int]],
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
    keep: Any = None,
    splits: Sequence[int] | None = None,
    sampled: bool | int = False,
    device: int = ...,
    stream: int = 0,
    ready_event: int = 0,
    tag: int = 0,
    *,
    notice: int = 0,
) -> int:
    """Starts one operation over one or more tensors (several = a group, all or nothing) and returns its
    handle.

    A tensor is (input address, output address, dtype, shape, input bytes, output bytes) of its contiguous
    input. Output address 0 = the core allocates, as it must for allgather, alltoall and reducescatter. In
    place: both addresses equal. The lengths must be what dtype and shape take. Memory must stay valid until
    the operation is complete: ``keep`` is kept alive until ``wait`` has told its outcome.
    ``name`` None = unnamed: all ranks must start their unnamed operations (of all kinds, per process set)
    in one order. ``root`` is a global rank. ``splits``, for ALLTOALL: how many rows of the one tensor go to
    each member of the set, at most its first dimension in all. ``sampled``: ``changed`` will be asked.

    ``device``: where the tensors are, which must be on an accelerator on all ranks or on none. HOST_DEVICE:
    in host memory (the default). STAGED_DEVICE: there too, as copies of an accelerator's. From 0 on: on the
    GPU of that number; the addresses are the device's, and the job must be one that serves the operation
    there (``gpu_serves``). ``stream``: the CUstream on which the caller works, ``ready_event``: a CUevent
    that was recorded on it after the inputs were computed (0: they are ready). Both must stay valid until
    the operation is complete, which it is when the work was given to the GPU: the host does not wait for
    that. The memory must stay valid, and untouched, until ``poll`` is true, or for what a stream was given
    after it was made to wait (``Output.follow``).

    SEND and RECV take no name and one tensor in host memory; ``root`` is the other rank, of a RECV perhaps
    -1 for any, and ``tag`` (from -2**62 to 2**62 - 1) that of the message. The output of a RECV is the
    tensor's own memory.

    ``notice``: not 0, of an operation without tensors, a byte that this rank tells the others in place of
    the operation of that name, of any kind. The operation then takes place nowhere, and ``wait`` raises
    ``Notice`` on all ranks.

    JOIN takes no name and no tensors: from here on this rank takes part in all operations of the set without
    data of its own, until every member has joined.

    Errors found before anything was sent: ValueError (duplicate name in flight, negative or too large
    shape, operation that the dtype does not have, a set that this rank is not part of),
    HorovodInternalError (not running any more).

    When the handle itself goes, the operation is forgotten, with what it keeps, once it is over.
    """

class Handle(int):
    """An operation in flight, of an adapter."""

    entries: ClassVar[dict[int, Any]]

def describer(
    exchange: Any,
    types: tuple[type, ...],
    otherwise: Callable[[Any], tuple[int, int, int, Sequence[int], int, int] | None],
) -> Callable[[Any], tuple[int, int, int, Sequence[int], int, int] | None]: ...
def submit_for(
    handle_type: type[Handle] | dict[int, Any],
    entry: Any,
    kind: int,
    name: str | None,
    tensors: Sequence[tuple[int, int, int, Sequence[int], int, int]],
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
    keep: Any = None,
    splits: Sequence[int] | None = None,
    sampled: bool | int = False,
    device: int = ...,
    stream: int = 0,
    ready_event: int = 0,
    tag: int = 0,
    *,
    notice: int = 0,
) -> int:
    """As ``submit``, with a handle of that type, and ``entry`` put into its entries by the handle's number
    before the operation begins: nothing is lost when a signal handler raises before Python has the handle.
    With the entries themselves the handle is a plain number.
    """

def name_of(handle: int) -> str:
    """The public name of an operation, for messages; empty for one that was waited for."""

def abandon(handle: int) -> None:
    """Nobody waits for the operation any more, or the wait was interrupted: the next of its name begins when
    it is over, and is no duplicate.
    """

def wait(handle: int, timeout: float | None = None, /) -> list[Output] | None:
    """Blocks until complete, driving the engine on this thread. The handle stays valid until ``forget()``, or
    until it is dropped if nobody keeps an entry for it: it may be waited for again, with the same outcome,
    as after a signal handler that raised while the result was on its way. Returns the
    core's outputs in the order of the tensors (None when the core allocated none; on a GPU each tensor has
    one): of an ALLTOALL the received tensor (not when it has filled a given output in host memory) and, as
    int64, how many rows each member sent; of a REDUCESCATTER this rank's rows; of a JOIN the last rank to
    join, as one int64; of a RECV the rank that has sent. Raises TensorMismatchError, HorovodInternalError
    (also where the job has ended before a GPU was done) or ValueError (unknown handle); TimeoutError after
    ``timeout`` seconds. Python signal handlers run while it waits.
    """

def forget(handle: int, entries: dict[int, Any] = ..., /) -> None:
    """Lets go of a handle that was waited for, of its entry in ``entries`` if there is one, and of what the
    operation has used.
    """

def poll(handle: int) -> bool:
    """True when complete, for the GPU too (or unknown, because it was waited for)."""

def handle_type(entries: dict[int, Any], dropped: deque[int]) -> type[Handle]:
    """A type of handles. One that goes is appended to ``dropped`` if it is a key of ``entries``, and its
    operation is abandoned. The garbage collector does not know its instances.
    """

def changed(handle: int) -> bool:
    """Whether somebody has written to the outputs of a ``sampled`` operation since it was complete: of small
    ones all bytes are compared, of large ones 1 KiB. False before that, and for other handles.
    """

def run(
    kind: int,
    name: str | None,
    tensors: Sequence[tuple[int, int, int, Sequence[int], int, int]],
    op: int = 1,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: int = 0,
    keep: Any = None,
    splits: Sequence[int] | None = None,
    sampled: bool | int = False,
    device: int = ...,
    stream: int = 0,
    ready_event: int = 0,
    tag: int = 0,
    timeout: float | None = None,
) -> list[Output] | None:
    """submit and wait in one call: the fast path of blocking operations. ``keep`` owns the memory: when
    a signal handler raises during the wait, or after ``timeout`` seconds (TimeoutError), the operation is
    still in flight and ``keep`` is kept alive for it.
    """

def gpu_serves(kind: int, dtype: int, op: int, prescale: float, postscale: float) -> bool:
    """Whether this job carries out such an operation on the GPUs themselves: the same answer on every rank.
    What it does not can be staged. False before init.
    """

def add_process_set(ranks: Sequence[int]) -> int:
    """Makes a set of ascending global ranks and returns its number. Blocks until it is wired up: every rank
    of the job must call it with equal ranks at the same time, also one that is not a member.
    """

def add_own_process_set(ranks: Sequence[int], timeout: float) -> int:
    """Likewise, but the members alone call it, each within ``timeout`` seconds of the first, and with the
    ranks in any order, which must be the same on all. An exception of a signal handler ends it, and the
    others get an error.
    """

def leave_process_set(process_set: int) -> None:
    """Lets go of a set that its members alone have made. Each calls it by itself, and it waits for nobody:
    nothing can be started on the set here any more. What is in flight on it goes on.
    """

def remove_process_set(process_set: int) -> None:
    """Ends a set; every rank of the job must call it at the same time."""

def in_flight(process_set: int) -> list[str]:
    """The names of this rank's operations that are in flight on a set."""

def await_stacks_request(signal: int = 0) -> bool:
    """Blocks until some rank asks that the stacks of all be shown; the next call says that they are. False
    when the engine was shut down. ``signal``: one at which this process shows its stacks even while native
    code holds the interpreter lock; the engine raises it in a thread of its own when nobody answers.
    """

def link_requests_descriptor() -> int:
    """A descriptor of the caller's, readable when ``take_link_requests`` has something to say."""

def take_link_requests() -> list[tuple[int, int]] | None:
    """(peer, role) of the links that are wanted since the last call; None: there will be no more."""

def add_link(link: tuple[int, int, int, bytes, bytes]) -> None:
    """Hands over a link that is wanted here or at its other end. The core owns its descriptor, also when this
    fails.
    """

def add_launcher(fd: int, key: bytes, frames: int) -> None:
    """Hands over a connection to the launcher in place of one that is lost: arguments as of ``init``. The
    core owns the descriptor, also when this fails.
    """

def give_up_link(peer: int, reason: str) -> None:
    """Ends the job for want of a link to ``peer``, unless that has left; -1: ends this rank for want of the
    launcher. ``reason``: for people.
    """

def show_stacks() -> None:
    """Asks all ranks, this one too, to show their stacks. Returns at once."""

def counters() -> dict[str, int]:
    """Totals since init: collectives, tensors, bytes, cache_hits, cache_misses, wakeups, responses,
    control_messages, messages (between two ranks), autotune_samples (on rank 0), waited_us (in which threads
    of the program waited for operations).
    """

def acquire_api() -> int:
    """The address of the table of C functions for native code (core/api/c_api.h). Whoever receives it owns a
    reference to it.
    """

def settings() -> list[tuple[str, str, str, str]]:
    """The one table of settings: (variable, type, default, help)."""

def check_setting(variable: str, value: str) -> None:
    """Raises ValueError, which names what is allowed, for a value that ``init`` would refuse."""

def shared_file_bytes(ranks: int) -> int:
    """What the largest file of shared memory of so many ranks of a host has at least."""

def start_timeline(path: str, mark_cycles: bool = False) -> None: ...
def stop_timeline() -> None: ...
