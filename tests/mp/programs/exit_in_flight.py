"""Starts operations and ends the interpreter, each time in another way: exit_in_flight.py NUMBER. No
framework.
"""

import ctypes
import sys
import threading

from horovod import _core
from horovod.common import basics

number = int(sys.argv[1])
basics.init()
memory = (ctypes.c_float * 4096)()
address = ctypes.addressof(memory)
tensor = (address, address, _core.DTYPES["float32"], (4096,), 4 * 4096, 4 * 4096)
for index in range(20):
    _core.submit(_core.ALLREDUCE, f"in flight {index}", [tensor])


def work() -> None:
    while True:
        _core.run(_core.ALLREDUCE, None, [tensor])


if number % 4 >= 2:
    threading.Thread(target=work, daemon=True).start()
if number % 2 == 1:
    sys.exit(7)
