"""What the start of a rank tells, as HOROVOD_LOG_LEVEL asks for it: lines like the core's."""

import os
import time

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
_YES = ("1", "true", "yes", "on")


def log(level: str, rank: int, text: str) -> None:
    """Writes one line to stderr, unless the level is below the one that is set (warning)."""
    wanted = os.environ.get("HOROVOD_LOG_LEVEL", "").lower() or "warning"
    if wanted not in LEVELS or LEVELS.index(level) < LEVELS.index(wanted):
        return  # the core refuses what is no level
    stamp = ""
    if os.environ.get("HOROVOD_LOG_HIDE_TIME", "").lower() not in _YES:
        now = time.time_ns() // 1000
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now // 10**6)) + f".{now % 10**6:06} "
    os.write(2, f"{stamp}[{rank}] {level}: {text}\n".encode(errors="backslashreplace"))
