"""A script that calls horovod.run, for tests of what happens to it.

python run_function.py <what> [arguments of horovod.run, as JSON]
"""

import json
import os
import pickle
import signal
import sys
import threading
import time

import horovod


class Trouble(Exception):
    """Of this script: a rank has it by value only."""


class Work:
    """Of this script: only an argument of the function is of this class."""


def copy_by_name(value: object) -> object:
    """With pickle, which looks for classes and functions in the program."""
    return pickle.loads(pickle.dumps(value))


def wait_for_ever() -> None:
    print("waiting", flush=True)
    while True:
        time.sleep(0.05)


def shrug_off_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_for_ever()


def fail_on_rank_1(number: int) -> None:
    if os.environ["HOROVOD_RANK"] == "1":
        raise Trouble("rank 1 is in trouble", number)
    time.sleep(30)


def interrupted(function) -> None:
    try:
        horovod.run(function, **{"num_proc": 2, **json.loads((sys.argv[2:] or ["{}"])[0])})
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def classes() -> None:
    try:
        horovod.run(fail_on_rank_1, args=(7,), num_proc=2)
    except Trouble as error:
        print("caught", error.args, type(error.__cause__).__name__, flush=True)
    ((work, function),) = horovod.run(copy_by_name, [(Work(), fail_on_rank_1)])
    print("copied", type(work) is Work, function.__name__)


def in_a_thread() -> None:
    """The main thread ends, and the interpreter waits for the thread."""
    thread = threading.Thread(target=lambda: print(horovod.run(lambda: sys.argv[1:], num_proc=2)))
    thread.start()


def in_a_daemon() -> None:
    """The interpreter ends while a thread that it does not wait for runs a job."""
    threading.Thread(target=horovod.run, args=(wait_for_ever,), kwargs={"num_proc": 2}, daemon=True).start()
    sys.stdin.readline()


PROGRAMS = {
    "wait": lambda: interrupted(wait_for_ever),
    "shrug": lambda: interrupted(shrug_off_interrupts),
    "classes": classes,
    "thread": in_a_thread,
    "daemon": in_a_daemon,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
