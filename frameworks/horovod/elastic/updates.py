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

    def agree(self, leaves: bool = False) -> tuple[HostUpdateResult, bool, frozenset[int]]:
        """What all updates that some rank has heard of since the last call have changed, whether all ranks
        have been asked, and which of them are to leave the job, as this one if it ``leaves``; the same on all
        of them. A collective, of the ranks that have not joined.
        """
        newest, result, is_complete = self.handled, 0, True
        leaving = frozenset({basics.rank()} if leaves and basics.is_initialized() else ())
        while self._heard:
            timestamp, update = self._heard.popleft()
            if timestamp > self.handled:
                newest = max(newest, timestamp)
                result |= update
        if basics.is_initialized() and basics.size() > 1:
            answers = exchange([newest, result, int(leaves)], _NAME)
            is_complete = len(answers) == basics.size()
            newest = max(timestamp for timestamp, _, _ in answers.values())
            leaving = frozenset(rank for rank, (_, _, is_leaving) in answers.items() if is_leaving)
            for _, update, _ in answers.values():
                result |= update
        self.handled = newest
        if leaving:
            result |= HostUpdateResult.removed
        return HostUpdateResult(result), is_complete, leaving

    def supersede(self) -> None:
        """The ranks are about to meet anew: what this rank has heard until now is old by then."""
        self._superseded = len(self._heard)

    def forget_superseded(self) -> None:
        """They have met. What was heard meanwhile is kept: it may have come too late for their meeting."""
        for _ in range(min(self._superseded, len(self._heard))):
            self._heard.popleft()
        self._superseded = 0
