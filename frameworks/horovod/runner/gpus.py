"""The GPUs of this machine, as their driver names them.

The driver is asked in a process of its own, which runs this file as a program: to initialise a driver takes
long, may never end on a machine that is not in order, and leaves a process that must not fork any more.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

_SECONDS = 20.0
_NAME_BYTES = 256
# Of a driver: what initialises it, counts its GPUs, opens and names one.
_CALLS = {
    "nccl": ("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"),
    "rccl": ("hipInit", "hipGetDeviceCount", "hipDeviceGet", "hipDeviceGetName"),
}


class DriverError(Exception):
    """A driver that does not answer, or with an error."""


def gpus(name: str, driver: str) -> list[str]:
    """The names of the GPUs of a driver (of CUDA for "nccl", of ROCm for "rccl").

    Raises DriverError, which says what the driver said.
    """
    command = [sys.executable, __file__, name, driver]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise DriverError(f"the driver has not answered within {_SECONDS:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it crashed"]
        raise DriverError(lines[-1])
    return list(json.loads(done.stdout))


def _ask(name: str, driver: str) -> list[str]:
    library = ctypes.CDLL(driver)

    def call(function: str, *arguments: Any) -> None:
        status = getattr(library, function)(*arguments)
        if status != 0:
            sys.exit(f"{function} of the driver says error {status}")

    initialise, count_them, open_one, name_it = _CALLS[name]
    call(initialise, 0)
    count = ctypes.c_int()
    call(count_them, ctypes.byref(count))
    found = []
    for number in range(count.value):
        device, text = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        call(open_one, ctypes.byref(device), number)
        call(name_it, text, _NAME_BYTES, device)
        found.append(text.value.decode(errors="replace"))
    return found


if __name__ == "__main__":
    print(json.dumps(_ask(*sys.argv[1:])))
