"""Limits of time in tests, on machines that are never quiet.

A limit is written down for an idle machine. ``within`` stretches it by how many runnable threads share a core
just now, the test's own included, so that a test measures the library and not its neighbours.
"""

import os

MOST = 20.0  # beyond that a machine is not busy but stuck


def slowdown() -> float:
    """How many times slower a thread runs now than alone on a core; at least 1."""
    with open("/proc/loadavg", encoding="ascii") as file:
        minute, _, _, threads, _ = file.read().split()
    runnable = max(float(minute), float(threads.split("/")[0]))
    return min(MOST, max(1.0, runnable / len(os.sched_getaffinity(0))))


def within(seconds: float) -> float:
    """The limit in seconds, on this machine and now, for what takes ``seconds`` at most on an idle one."""
    return seconds * slowdown()
