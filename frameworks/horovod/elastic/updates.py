"""News of hosts that come and go, as the ranks hear and agree on them."""

from __future__ import annotations

import enum
from collections import deque
from typing import Any, NamedTuple

from horovod.common import basics
from horovod.common.set_agreement import exchange

_NAME = "horovod.elastic.updates"


class HostUpdateResult(enum.IntFlag):
    """What an update of the hosts has changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class News(NamedTuple):
    """What the ranks have told each other. ``result``: what all updates have changed that some rank has heard
    of since the last time; ``is_complete``: whether all ranks have been asked; ``notes``: what they added, by
    rank; ``leaving``: the ranks that are to leave the job.
    """

    result: HostUpdateResult
    is_complete: bool
    notes: dict[int, Any]
    leaving: frozenset[int] = frozenset()


class HostUpdates:
    """The updates that this rank has heard of and the ranks have not agreed on yet. ``note`` may be called
    from any thread.

    ``handled``: the time of the newest update that the ranks have agreed on. What one of them hears later of
    an update until then is old: they have met again since.
    """

    def __init__(self) -> None:
        self.handled = 0.0
        self._heard: deque[tuple[float, int]] = deque()
        self._superseded: int | None = None

    def note(self, timestamp: float, result: int) -> None:
        """One more."""
        self._heard.append((timestamp, int(result)))

    def agree(self, note: Any = None, leaves: bool = False) -> News:
        """The same on all ranks. A collective, of the ranks that have not joined.

        Args:
            note: what this rank adds; made of lists, numbers and text.
            leaves: whether this rank is to leave the job.
        """
        newest, result, is_complete, notes = self.handled, 0, True, {0: note}
        leaving = frozenset({0} if leaves else ())
        self._superseded = None
        while self._heard:
            timestamp, update = self._heard.popleft()
            if timestamp > self.handled:
                newest = max(newest, timestamp)
                result |= update
        if basics.is_initialized() and basics.size() > 1:
            answers = exchange([newest, result, note, int(leaves)], _NAME)
            is_complete = len(answers) == basics.size()
            newest = max(timestamp for timestamp, *_ in answers.values())
            leaving = frozenset(rank for rank, told in answers.items() if told[3])
            for _, update, *_ in answers.values():
                result |= update
            notes = {rank: told[2] for rank, told in answers.items()}
        self.handled = newest
        if leaving:
            result |= HostUpdateResult.removed
        return News(HostUpdateResult(result), is_complete, notes, leaving)

    def supersede(self) -> None:
        """The ranks are about to meet anew: what this rank has heard until now is old by then. Said again
        before they have met, it changes nothing.
        """
        if self._superseded is None:
            self._superseded = len(self._heard)

    def forget_superseded(self) -> None:
        """They have met. What was heard meanwhile is kept: it may have come too late for their meeting."""
        for _ in range(min(self._superseded or 0, len(self._heard))):
            self._heard.popleft()
        self._superseded = None
