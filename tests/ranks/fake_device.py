"""The fake GPU of a rank, by its driver: memory, one stream, and operations of the core on them."""

import ctypes
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from horovod import _core

NOT_READY = 600
DEVICE = 0


class Block:
    """An array in the memory of the GPU. ``kind``: the name of its type, where numpy lacks it."""

    kind = ""

    def __init__(self, address: int, shape: Sequence[int], dtype: Any) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def spec(self, output: "Block | None") -> tuple[Any, ...]:
        """For the core; ``output`` None: the core allocates."""
        to, room = (output.address, output.nbytes) if output else (0, 0)
        number = _core.DTYPES[self.kind or self.dtype.name]
        return (self.address, to, number, self.shape, self.nbytes, room)


class FakeDevice:
    """A GPU, current in this thread. ``folder``: where the driver is."""

    def __init__(self, folder: str) -> None:
        self._driver = ctypes.CDLL(str(Path(folder) / "libcuda.so.1"))
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), DEVICE)
        self._call("cuCtxPushCurrent_v2", context)
        self.stream = self.new_stream()

    def new_stream(self) -> int:
        """One more stream."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        return stream.value or 0

    def block(self, array: np.ndarray) -> Block:
        """A copy of the array, made on the stream."""
        array = np.ascontiguousarray(array)
        block = self.empty(array.shape, array.dtype)
        self._pinned = array  # as long as the copy may take
        if block.nbytes:
            self._call(
                "cuMemcpyHtoDAsync_v2",
                ctypes.c_uint64(block.address),
                ctypes.c_void_p(array.ctypes.data),
                ctypes.c_size_t(block.nbytes),
                ctypes.c_void_p(self.stream),
            )
            self.synchronize()
        return block

    def empty(self, shape: Sequence[int], dtype: Any) -> Block:
        """Memory that is never freed."""
        block = Block(0, shape, dtype)
        address = ctypes.c_uint64()
        if block.nbytes:
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(block.nbytes))
        block.address = address.value
        return block

    def array(self, block: Block) -> np.ndarray:
        """A copy of the block, made on the stream, which is waited for."""
        array = np.empty(block.shape, block.dtype)
        if block.nbytes:
            self._call(
                "cuMemcpyDtoHAsync_v2",
                ctypes.c_void_p(array.ctypes.data),
                ctypes.c_uint64(block.address),
                ctypes.c_size_t(block.nbytes),
                ctypes.c_void_p(self.stream),
            )
        self.synchronize()
        return array

    def adopted(self, output: Any) -> Block:
        """An output of the core. It lives as long as this process."""
        names = {number: name for name, number in _core.DTYPES.items()}
        assert output.device == DEVICE and output.__dlpack_device__() == (2, DEVICE)
        self._kept = [*getattr(self, "_kept", []), output]
        return Block(_address_of(output), output.shape, names[output.dtype])

    def event(self) -> int:
        """Recorded on the stream."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 2)
        self._call("cuEventRecord", event, ctypes.c_void_p(self.stream))
        return event.value or 0

    def occupy(self, seconds: int) -> None:
        """Gives the stream a kernel that takes so long."""
        sleep = ctypes.cast(ctypes.CDLL(None).sleep, ctypes.c_void_p)
        self._call("cuLaunchHostFunc", ctypes.c_void_p(self.stream), sleep, ctypes.c_void_p(seconds))

    def is_busy(self) -> bool:
        """Whether the stream has work."""
        status = self._driver.cuStreamQuery(ctypes.c_void_p(self.stream))
        assert status in (0, NOT_READY), status
        return status == NOT_READY

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def submit(
        self, kind: int, name: str | None, blocks: Sequence[Block], outputs: Sequence[Any], **more: Any
    ) -> int:
        """Starts an operation behind all that the stream has been given."""
        specs = [block.spec(output) for block, output in zip(blocks, outputs, strict=True)]
        more = {"device": DEVICE, "stream": self.stream, "ready_event": self.event(), **more}
        return _core.submit(kind, name, specs, **more)

    def wait(self, handle: int, stream: int = 0) -> list[Any]:
        """Waits for an operation and has a stream of its GPU wait for it, the first one if none is named. Its
        outputs.
        """
        outputs = _core.wait(handle) or []
        for output in outputs:
            if output.device == DEVICE:
                output.follow(stream or self.stream)
        return outputs

    def compute(self, microseconds: int) -> None:
        """Gives the stream a kernel that takes so long, in simulated time."""
        self._driver.fake_gpu_compute(ctypes.c_void_p(self.stream), ctypes.c_longlong(microseconds))

    def simulated_time(self) -> int:
        """In microseconds, when the stream has done all that it was given."""
        time = self._driver.fake_gpu_time
        time.restype = ctypes.c_longlong
        return time(ctypes.c_void_p(self.stream))

    def capture(self, captures: bool) -> None:
        """As if the program began to capture the stream, or ended that."""
        self._driver.fake_gpu_capture_stream(ctypes.c_void_p(self.stream), int(captures))

    def calls(self) -> str:
        """What both libraries have been asked, one line for each call."""
        self._driver.fake_gpu_calls.restype = ctypes.c_char_p
        return self._driver.fake_gpu_calls().decode()

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._driver, function)(*arguments)
        assert status == 0, f"{function} says {status}"


def fake_device() -> FakeDevice:
    """The one whose driver LD_LIBRARY_PATH names."""
    return FakeDevice(os.environ["LD_LIBRARY_PATH"])


def _address_of(output: Any) -> int:
    """Where the memory of a DLPack capsule begins: its first member."""
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = output.__dlpack__()
    return ctypes.c_uint64.from_address(read(capsule, b"dltensor")).value
