"""Limits of time in tests, on machines that are never quiet.

A limit is written down for an idle machine. ``within`` stretches it by how many runnable threads share a core
just now, the test's own included, so that a test measures the library and not its neighbours. Where tests run
side by side it stretches by what they may do together, too: the average of a minute lags behind a burst, and
the moment in which a limit is asked for may be a quiet one at the end of it.
"""

import os

MOST = 20.0  # beyond that a machine is not busy but stuck
EACH = 2  # threads that a test runs beside those of the other workers of pytest, at least


def slowdown() -> float:
    """How many times slower a thread runs now than alone on a core; at least 1."""
    with open("/proc/loadavg", encoding="ascii") as file:
        minute, _, _, threads, _ = file.read().split()
    beside = EACH * (int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1)
    runnable = max(float(minute), float(threads.split("/")[0]), float(beside))
    return min(MOST, max(1.0, runnable / len(os.sched_getaffinity(0))))


def within(seconds: float) -> float:
    """The limit in seconds, on this machine and now, for what takes ``seconds`` at most on an idle one."""
    return seconds * slowdown()
