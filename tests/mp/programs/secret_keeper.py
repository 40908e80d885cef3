"""A rank that starts children before and after it imports horovod and initialises, twice; then it waits."""

import os
import subprocess
import sys
import time

SLEEP = ["sleep", "300"]
SHELL = ["sh", "-c", "sleep 300; true"]


def forked() -> None:
    """A child that only sleeps."""
    if os.fork() == 0:
        time.sleep(300)
        os._exit(0)


subprocess.Popen(SLEEP)
import plain_horovod as hvd  # noqa: E402

subprocess.Popen(SHELL)
forked()
hvd.init()
forked()
subprocess.Popen(SLEEP)
hvd.shutdown()
hvd.init()
subprocess.Popen(SHELL, close_fds=False)
assert hvd.broadcast_object(hvd.rank(), root_rank=1) == 1
print("ready", flush=True)
time.sleep(300)
sys.exit(1)
