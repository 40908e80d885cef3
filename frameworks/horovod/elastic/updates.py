"""News of hosts that come and go, as the ranks hear and agree on them."""

from __future__ import annotations

import enum
from collections import deque

from horovod.common import basics
from horovod.common.set_agreement import exchange

_NAME = "horovod.elastic.updates"


class HostUpdateResult(enum.IntFlag):
    """What an update of the hosts has changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class HostUpdates:
    """The updates that this rank has heard of and the ranks have not agreed on yet. ``note`` may be called
    from any thread.

    ``handled``: the time of the newest update that the ranks have agreed on. What one of them hears later of
    an update until then is old: they have met again since.
    """

    def __init__(self) -> None:
        self.handled = 0.0
        self._heard: deque[tuple[float, int]] = deque()
        self._superseded = 0

    def note(self, timestamp: float, result: int) -> None:
        """One more."""
        self._heard.append((timestamp, int(result)))

    def agree(self) -> tuple[HostUpdateResult, bool]:
        """What all updates that some rank has heard of since the last call have changed, and whether all
        ranks have been asked; the same on all of them. A collective, of the ranks that have not joined.
        """
        newest, result, is_complete = self.handled, 0, True
        while self._heard:
            timestamp, update = self._heard.popleft()
            if timestamp > self.handled:
                newest = max(newest, timestamp)
                result |= update
        if basics.is_initialized() and basics.size() > 1:
            answers = exchange([newest, result], _NAME).values()
            is_complete = len(answers) == basics.size()
            newest = max(timestamp for timestamp, _ in answers)
            for _, update in answers:
                result |= update
        self.handled = newest
        return HostUpdateResult(result), is_complete

    def supersede(self) -> None:
        """The ranks are about to meet anew: what this rank has heard until now is old by then."""
        self._superseded = len(self._heard)

    def forget_superseded(self) -> None:
        """They have met. What was heard meanwhile is kept: it may have come too late for their meeting."""
        for _ in range(min(self._superseded, len(self._heard))):
            self._heard.popleft()
        self._superseded = 0
