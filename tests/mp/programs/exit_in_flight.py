"""Starts operations and ends the interpreter, each time in another way: exit_in_flight.py NUMBER. No
framework.
"""

import contextlib
import ctypes
import sys
import threading

from horovod import _core
from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError

number = int(sys.argv[1])
basics.init()
memory = (ctypes.c_float * 4096)()
address = ctypes.addressof(memory)
tensor = (address, address, _core.DTYPES["float32"], (4096,), 4 * 4096, 4 * 4096)
for index in range(20):
    _core.submit(_core.ALLREDUCE, f"in flight {index}", [tensor])


def work() -> None:
    # Until the end of the interpreter has ended the job. An error that a daemon thread prints at that time
    # can be the end of any Python, which finds the standard error locked by a thread that is no more.
    with contextlib.suppress(ValueError, HorovodInternalError):
        while True:
            _core.run(_core.ALLREDUCE, None, [tensor])


if number % 4 >= 2:
    threading.Thread(target=work, daemon=True).start()
if number % 2 == 1:
    sys.exit(7)
