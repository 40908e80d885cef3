"""What ranks do in the cases of the layer "launcher and signals"."""

import os
import signal
import sys
import time

import plain
from plain import right, start, steps

from horovod.common import basics as hvd

LONG = 10**9


def polite() -> None:
    """Ends well on SIGTERM, as a program does that saves a checkpoint."""
    signal.signal(signal.SIGTERM, _leave)
    start()
    steps(LONG, pause=0.002)


def _leave(number: int, frame: object) -> None:
    print(f"rank {hvd.rank()} got signal {number}", flush=True)
    os._exit(0)


def deaf() -> None:
    """Ignores every signal that can be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    start()
    while True:
        time.sleep(1)


def counts_signals() -> None:
    """Says which signals come, and ends well on SIGUSR2."""
    signal.signal(signal.SIGUSR1, lambda *_: print("got SIGUSR1", flush=True))
    stop: list[int] = []
    signal.signal(signal.SIGUSR2, lambda *_: stop.append(1))
    start()
    while not stop:
        time.sleep(0.05)
    right()
    hvd.shutdown()


def children(detached: str) -> None:
    """Each rank has children that ignore SIGTERM: one in a session of its own, one forked twice."""
    start()
    for double in (False, True):
        if os.fork() == 0:
            os.setsid()
            if double and os.fork():
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if detached == "silent":
                sys.stdout.close()
            time.sleep(60)
            os._exit(0)
    steps(LONG, pause=0.002)


if __name__ == "__main__":
    plain.main(globals())
