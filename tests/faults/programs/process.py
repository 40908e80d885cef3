"""What ranks do in the cases of the layer "process"."""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

import plain
from plain import Memory, allreduce, fault, right, start, steps

from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import HorovodInternalError

LONG = 10**9


def train(count: str = str(LONG), pause: str = "0.001") -> None:
    """Steps until something ends them."""
    start()
    steps(int(count), pause=float(pause))
    right()
    hvd.shutdown()


def one_large(elements: str) -> None:
    """Allreduces of one size; HOROVOD_FAILPOINT stops a rank in the middle of one."""
    hvd.init()
    rank = hvd.rank()
    memory = Memory(int(elements), 0.0)
    try:
        while True:
            allreduce("large", memory)
    except HorovodInternalError as error:
        print(f"rank {rank} failed at {time.time():.3f}: {error}", flush=True)
        raise


def misdeed(what: str) -> None:
    """After some steps rank 1 does something; the others go on."""
    rank = start()
    if rank == 1:
        fault()
        MISDEEDS[what]()
    steps(LONG, pause=0.001)


def user_code_that_crashes() -> None:
    ctypes.string_at(0)


def user_code_that_raises() -> None:
    raise LookupError("the reason of rank 1")


def take_memory() -> None:
    """Until the kernel ends this process."""
    taken = []
    while True:
        taken.append(b"x" * (16 << 20))


MISDEEDS = {
    "take-memory": take_memory,
    "crash": user_code_that_crashes,
    "abort": os.abort,
    "raise": user_code_that_raises,
    "leave": lambda: sys.exit(0),
    "leave-at-once": lambda: os._exit(0),
    "leave-with-7": lambda: sys.exit(7),
    "hold-the-lock": lambda: ctypes.PyDLL(None).pause(),
}


def all_raise() -> None:
    """Every rank raises an error of its own; that of rank 2 comes first."""
    rank = start()
    if rank == 2:
        fault()
    else:
        time.sleep(0.02 * (1 + rank))
    raise LookupError(f"the reason of rank {rank}")


def leave_in_flight(how: str) -> None:
    """The interpreter ends with operations in flight."""
    rank = start()
    for index in range(20):
        memory = Memory(2000)
        _core.submit(_core.ALLREDUCE, f"in flight {index}", [memory.spec()])
        KEPT.append(memory)
    if how == "atexit":
        atexit.register(lambda: 1 / 0)
    elif how == "thread":
        threading.Thread(target=lambda: steps(LONG), daemon=True).start()
    if rank == 0:
        fault()


KEPT: list[Memory] = []


def fork() -> None:
    """A forked child is not part of the job, and does not disturb it."""
    start()
    child = os.fork()
    if child == 0:
        try:
            allreduce("of the child", Memory(1))
        except (ValueError, HorovodInternalError) as error:
            os._exit(42 if "fork" in str(error) or "init" in str(error) else 1)
        os._exit(2)
    steps(50)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42, "the child was not refused"
    inherited = [fd for fd in plain.links.values() if _is_open(fd) and os.get_inheritable(fd)]
    assert not inherited, f"links that programs inherit: {inherited}"
    right()
    hvd.shutdown()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def import_in_a_child() -> None:
    from horovod.common import basics

    assert not basics.is_initialized()


def children(method: str) -> None:
    """A child of multiprocessing imports horovod and counts as no rank."""
    start()
    child = multiprocessing.get_context(method).Process(target=import_in_a_child)
    child.start()
    steps(50)
    child.join()
    assert child.exitcode == 0
    right()
    hvd.shutdown()


def threads(count: str) -> None:
    """Many threads use the library at once, also while it is shut down."""
    start()
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                assert allreduce(f"of thread {number}", Memory(100)).is_all(hvd.size())
            while True:
                allreduce(f"last of thread {number}", Memory(100))
        except (ValueError, HorovodInternalError):  # shut down
            pass
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(int(count))]
    for worker in workers:
        worker.start()
    time.sleep(1.0)
    allreduce("together", Memory(1))
    hvd.shutdown()
    for worker in workers:
        worker.join(20)
    assert not wrong and not any(worker.is_alive() for worker in workers), wrong
    right()


def slow_rank(factor: str) -> None:
    """Rank 1 takes several times as long for a step."""
    rank = start()
    end = time.monotonic() + 14
    while allreduce("go on", Memory(1, float(time.monotonic() < end))).data[0] > 0:
        time.sleep(0.02 * (float(factor) if rank == 1 else 1))
        steps(1)
    right()
    hvd.shutdown()


def slow_first_step() -> None:
    """Rank 1 compiles for long before its first step."""
    hvd.init()
    if hvd.rank() == 1:
        time.sleep(13)
    steps(20)
    right()
    hvd.shutdown()


def stop_oneself() -> None:
    """Rank 1 stops in the middle of its steps."""
    if start() == 1:
        fault()
        os.kill(os.getpid(), signal.SIGSTOP)
    steps(LONG, pause=0.001)


if __name__ == "__main__":
    plain.main(globals())
