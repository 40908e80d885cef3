"""Blocking allreduce over TCP between two processes, against a bare connection that carries the same bytes.

horovodrun -np 2 python benchmarks/stream.py

Of n bytes each of two ranks must send n and receive n. The stream does only that, over one connection, both
ways at once: no checksum, no sum. So its time divided by ours is how much of the bandwidth we use.
"""

import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from samples import OURS, Row, interleave, load
from session import Session, session

STREAM = "stream"
SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
QUICK_SIZES = [64 << 10, 1 << 20]
MOST_AT_ONCE = 256 << 10  # bytes of a call: they stay in the cache between the two copies
ROUND_BUDGET_S = 0.3

Call = Callable[[torch.Tensor], None]


class Stream:
    """A connection to the other rank, used by one thread for both ways."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._connection = connection
        self._events = select.poll()
        self._arrived = bytearray(max(SIZES))  # written before: no page of it is new

    def exchange(self, tensor: torch.Tensor) -> None:
        """Sends the tensor and receives as much."""
        outgoing = memoryview(tensor.numpy()).cast("B")
        size, sent, received = len(outgoing), 0, 0
        incoming = memoryview(self._arrived)[:size]
        while sent < size or received < size:
            got = self._receive(incoming[received:])
            put = self._send(outgoing[sent:])
            received, sent = received + got, sent + put
            if got == put == 0:
                self._events.register(
                    self._connection, select.POLLIN | (select.POLLOUT if sent < size else 0)
                )
                self._events.poll()

    def _receive(self, rest: memoryview) -> int:
        try:
            return self._connection.recv_into(rest[:MOST_AT_ONCE]) if rest else 0
        except BlockingIOError:
            return 0

    def _send(self, rest: memoryview) -> int:
        try:
            return self._connection.send(rest[:MOST_AT_ONCE]) if rest else 0
        except BlockingIOError:
            return 0


def connect(folder: Path, rank: int) -> Stream:
    """Over TCP of this machine; the port is told in a file."""
    path = folder / "port"
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        path.with_suffix(".new").write_text(str(listener.getsockname()[1]), encoding="ascii")
        path.with_suffix(".new").rename(path)
        return Stream(listener.accept()[0])
    while not path.exists():
        time.sleep(0.01)
    return Stream(socket.create_connection(("127.0.0.1", int(path.read_text(encoding="ascii")))))


def check(run: Session, call: Call, elements: int) -> None:
    """Every element, exactly."""
    pattern = torch.arange(elements) % 5 + 1
    tensor = (pattern * (run.rank + 1)).float()
    call(tensor)
    if not torch.equal(tensor, (pattern * 3).float()):
        raise AssertionError(f"wrong sum of {elements} elements on rank {run.rank}")


def timed(run: Session, call: Call, tensor: torch.Tensor) -> float:
    """Seconds on the slower rank; the buffer is written before, as a training step does."""
    tensor.zero_()
    run.board.barrier()
    start = time.perf_counter()
    call(tensor)
    return run.board.max(time.perf_counter() - start)


class Sampler:
    """One way to move a tensor; it also counts what the processor does for it."""

    def __init__(self, run: Session, call: Call, tensor: torch.Tensor) -> None:
        self._run, self._call, self._tensor = run, call, tensor
        self.cpu_s: list[float] = []  # of a call, on this rank
        estimate = min(timed(run, call, tensor) for _ in range(3))
        count = run.board.decide(max(2.0, min(40.0, ROUND_BUDGET_S / estimate)))
        self._count = 2 if run.quick else int(count)

    def __call__(self) -> list[float]:
        return [self._one() for _ in range(self._count)]

    def _one(self) -> float:
        self._tensor.zero_()
        self._run.board.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        self._call(self._tensor)
        seconds = time.perf_counter() - start
        self.cpu_s.append(time.process_time() - cpu)
        return self._run.board.max(seconds)


def measure(run: Session, ours: Call, stream: Call, size: int) -> None:
    check(run, ours, size // 4)
    tensor = torch.zeros(size // 4)
    samplers = {OURS: Sampler(run, ours, tensor), STREAM: Sampler(run, stream, tensor)}
    row = Row("stream", title(size), run.size, interleave(dict(samplers), run.rounds), load())
    cpu = {name: statistics.median(sampler.cpu_s) / size * 1e9 for name, sampler in samplers.items()}
    row.note = (
        f"{size / row.median(OURS) / 1e9:.2f} of {size / row.median(STREAM) / 1e9:.2f} GB/s each way; "
        f"processor {cpu[OURS]:.2f} and {cpu[STREAM]:.2f} ns a byte"
    )
    run.rows.append(row)


def title(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def main() -> None:
    os.environ["HOROVOD_TRANSPORT"] = "tcp"
    import horovod.torch as hvd

    def ours(tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, name=f"stream.{tensor.numel()}", op=hvd.Sum)

    streams: list[Stream] = []

    @contextmanager
    def connection(folder: Path, rank: int, size: int) -> Iterator[None]:
        if size != 2:
            raise SystemExit("benchmarks/stream.py is for two ranks: horovodrun -np 2")
        streams.append(connect(folder, rank))
        yield

    with session(__doc__.splitlines()[0], connection) as run:
        for size in QUICK_SIZES if run.quick else SIZES:
            measure(run, ours, streams[0].exchange, size)


if __name__ == "__main__":
    main()
