"""Word that a host is about to be taken away: a file that whoever knows it makes there."""

import os

PERIOD_SECONDS = 1.0
_HOST = "{host}"


class Notice:
    """Looks for the file once in a while. ``path`` may have {host} in it, for a folder that hosts share;
    None: there is no such file.
    """

    def __init__(self, path: str | None, host: str) -> None:
        self.path = None if path is None else path.replace(_HOST, host)
        self.is_given = False
        self._next = float("inf") if path is None else 0.0

    def look(self, now: float) -> bool:
        """Whether ``is_given`` has changed."""
        if now < self._next or self.path is None:
            return False
        self._next = now + PERIOD_SECONDS
        before, self.is_given = self.is_given, os.path.lexists(self.path)
        return self.is_given != before

    def next_time(self) -> float:
        """When to call ``look`` (infinity: never)."""
        return self._next
