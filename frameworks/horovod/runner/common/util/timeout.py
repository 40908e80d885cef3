"""A limit of time, as the settings of Horovod 0.28 have it."""

import time


class TimeoutException(Exception):
    """A limit has passed."""


class Timeout:
    """A limit that begins now.

    Args:
        timeout: in seconds.
        message: of the exception, with ``{activity}`` in it.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self.timeout = timeout
        self._end = time.time() + timeout
        self._message = message

    def remaining(self) -> float:
        """In seconds; at least 0."""
        return max(0.0, self._end - time.time())

    def timed_out(self) -> bool:
        """Whether the limit has passed."""
        return time.time() > self._end

    def timeout_at(self) -> float:
        """When it passes, in seconds since 1970."""
        return self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException, which names the activity, when the limit has passed."""
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity))
