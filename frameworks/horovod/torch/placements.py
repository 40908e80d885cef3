"""How a torch tensor takes part in an operation: in host memory as it is, on the GPU itself where the job can
(NCCL), or staged through host memory.

On the GPU the core works beside the caller's streams: an event says when the inputs are computed, and an
operation is complete as soon as the GPU was given all of it. At ``synchronize`` the stream that is current
then waits for the result. The host never waits.

A tensor that is staged is copied to pinned host memory at submission, on the caller's current stream, behind
whatever computes it; an event says when the copy is done, and only then does the core see the bytes. At
``synchronize`` the result is copied back on the stream that is current then. The host blocks on neither copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from horovod.common.collective.tensor_glue import DTYPES as NUMBERS
from horovod.common.collective.tensor_glue import STAGED, Output, Placement, Purpose, Result
from horovod.torch.devices import BlockingDevice, StreamWork, calls_to
from horovod.torch.layouts import laid_out_as

DTYPES: dict[torch.dtype, int] = {
    dtype: number
    for name, number in NUMBERS.items()
    if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}
"""The numbers by which the core knows torch's types. Older versions of torch lack some of them."""

# The core hands these out as bytes: not every torch can import them.
_FLOATS_OF_8_BITS = {
    number: dtype for dtype, number in DTYPES.items() if dtype.is_floating_point and dtype.itemsize == 1
}


def on_host(tensor: torch.Tensor, result: Result) -> Placement[torch.Tensor]:
    """A tensor in host memory."""
    data = tensor.detach()
    source = data.resolve_neg().contiguous()  # the same tensor where nothing is to be done
    address = source.data_ptr()
    dtype = DTYPES[source.dtype]
    if result is Result.FROM_CORE:
        return Placement((address, 0, dtype, source.shape, source.nbytes, 0), source, adopt)
    if result is Result.LIKE_INPUT:
        output = torch.empty(source.shape, dtype=source.dtype, device="cpu")
        spec = (address, output.data_ptr(), dtype, source.shape, source.nbytes, output.nbytes)
        if source is data:
            return Placement(spec, (source, output), lambda _: output)
        return Placement(spec, (source, output), lambda _: laid_out_as(output, data))

    def finish(output: Output | None) -> torch.Tensor:
        if source is not data:
            data.copy_(source)
        return tensor

    spec = (address, address, dtype, source.shape, source.nbytes, source.nbytes)
    return Placement(spec, source, finish)


def on_devices(
    tensors: Sequence[torch.Tensor], result: Result, purpose: Purpose, calls: BlockingDevice | None = None
) -> list[Placement[torch.Tensor]]:
    """Tensors of devices that travel as one operation. ``calls``: to their device.

    Raises ValueError when the current stream captures a graph.
    """
    device = tensors[0].device
    calls = calls or calls_to(device)
    if calls.is_capturing(device):
        raise ValueError(
            f"The current stream of {device} captures a graph, and an operation of horovod cannot be part of "
            "one: what it does depends on the other ranks. Capture the forward and backward pass without it "
            "(with a DistributedOptimizer within optimizer.no_sync()), and reduce after graph.replay()."
        )
    if calls.has_streams and all(
        tensor.device == device and purpose.runs_on_gpu(DTYPES[tensor.dtype]) for tensor in tensors
    ):
        return _on_gpu(tensors, result, calls)
    return [_staged(tensor, result, calls) for tensor in tensors]


def adopt(output: Output | None) -> torch.Tensor:
    """The core's output as a tensor, without a copy."""
    assert output is not None  # the core allocates in an operation that adopts
    tensor = torch.from_dlpack(output)
    dtype = _FLOATS_OF_8_BITS.get(output.dtype)
    return tensor if dtype is None else tensor.view(dtype)


def _on_gpu(
    tensors: Sequence[torch.Tensor], result: Result, calls: BlockingDevice
) -> list[Placement[torch.Tensor]]:
    aliases = [tensor.detach() for tensor in tensors]
    sources = [data.resolve_neg().contiguous() for data in aliases]
    targets = sources
    if result is Result.LIKE_INPUT:
        targets = [torch.empty(source.shape, dtype=source.dtype, device=source.device) for source in sources]
    # Last, behind the copies, and behind what other threads had in the memory of the targets before.
    work = StreamWork(calls, tensors[0].device)
    return [
        _of_stream(*members, result, work) for members in zip(tensors, aliases, sources, targets, strict=True)
    ]


def _of_stream(
    tensor: torch.Tensor,
    data: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    result: Result,
    work: StreamWork,
) -> Placement[torch.Tensor]:
    """The placement of ``tensor``; ``data``: its detached alias, ``source``: that or a contiguous copy,
    ``target``: where the result goes, unless the core allocates.
    """

    def finish(output: Output | None) -> torch.Tensor:
        assert output is not None  # on a GPU each tensor has one
        work.follow(output, source, target)
        if result is Result.FROM_CORE:
            return adopt(output).clone()  # in memory of torch's allocator, which knows the stream
        if result is Result.LIKE_INPUT:
            return target if source is data else laid_out_as(target, data)
        if source is not data:
            data.copy_(source)
        return tensor

    address, size = source.data_ptr(), source.nbytes
    to, room = (0, 0) if result is Result.FROM_CORE else (target.data_ptr(), size)
    spec = (address, to, DTYPES[source.dtype], source.shape, size, room)
    return Placement(spec, (source, target, work), finish, location=work.location)


def _staged(tensor: torch.Tensor, result: Result, calls: BlockingDevice) -> Placement[torch.Tensor]:
    data = tensor.detach()
    buffer = calls.host_buffer(data)
    buffer.copy_(data, non_blocking=calls.non_blocking)
    ready = calls.record(tensor.device)

    def finish(output: Output | None) -> torch.Tensor:
        if result is Result.FROM_CORE:
            return adopt(output).to(tensor.device)
        target = (
            data if result is Result.IN_PLACE else torch.empty_like(data, memory_format=torch.preserve_format)
        )
        target.copy_(buffer, non_blocking=calls.non_blocking)
        return tensor if result is Result.IN_PLACE else target

    address = buffer.data_ptr()
    size = buffer.nbytes
    output_address, room = (0, 0) if result is Result.FROM_CORE else (address, size)
    spec = (address, output_address, DTYPES[buffer.dtype], buffer.shape, size, room)
    return Placement(spec, (buffer, data), finish, ready, STAGED)
