"""Rank 1 does not come through hvd.init(), in the way that the argument says, or none does; the others call
it, some seconds after rank 4 if there is a second argument.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from horovod.common import basics as hvd

ABSENT = 1
CALLS_BEFORE = 1.0  # seconds, by which the others wait in hvd.init()


def leave_late() -> None:
    time.sleep(CALLS_BEFORE)
    sys.exit(0)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_once_known() -> None:
    """Freezes between telling the others where it listens and being linked to them."""
    from horovod.bootstrap.mesh import mesh

    mesh.Linker.run = lambda *_: stop()


MISDEEDS: dict[str, Callable[[], None]] = {
    "leave": lambda: sys.exit(0),
    "leave-late": leave_late,
    "sleep": lambda: time.sleep(3600),
    "stop": stop,
    "stop-once-known": stop_once_known,
    "all-stop": stop,
    "all-stop-once-known": stop_once_known,
}

if sys.argv[1] == "all-stop":  # rank 1 before it comes, the others while they wait for it
    threading.Timer(CALLS_BEFORE, stop).start()
if sys.argv[1] == "all-stop-once-known":
    stop_once_known()
if os.environ["HOROVOD_RANK"] == str(ABSENT):
    MISDEEDS[sys.argv[1]]()
if os.environ["HOROVOD_RANK"] != "4":
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
hvd.init()
