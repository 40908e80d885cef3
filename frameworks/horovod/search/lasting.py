"""A search in an elastic job: when ranks are lost or come, the teams are made anew and the study goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from horovod.bootstrap.start import elastic_membership
from horovod.common import basics
from horovod.common.collective.byte_objects import objects
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState

Found = TypeVar("Found")


class Progress(ObjectState):
    """In which team this rank is, as far as the others need it when some of them are gone.

    Attributes:
        whole: after ``sync``: the teams, of those that were at work, that have lost no rank; None: none was
            at work.
        has_news: hosts have come or gone.
    """

    def __init__(self) -> None:
        super().__init__(objects.broadcast_object, basics.rank, ended=0)
        self.whole: list[int] | None = None
        self.has_news = False
        self._begun = 0  # how often teams were made
        self._place: tuple[int, int] | None = None  # the team, and how many ranks it has

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Called on another thread."""
        super().on_hosts_updated(timestamp, update_res)
        self.has_news = True

    def sync(self) -> None:
        """Tells all ranks which teams are all still there."""
        super().sync()
        told = objects.allgather_object((self._begun, self._place), "horovod.search.teams")
        latest = max(begun for begun, _ in told)
        places = [place for begun, place in told if begun == latest and place is not None]
        whole = sorted({team for team, size in places if places.count((team, size)) == size})
        self.whole = whole if latest > 0 else None
        self._begun, self.has_news = latest, False

    def begin(self, team: int | None, size: int) -> None:
        """Teams are at work, and this rank is in one of ``size`` ranks, or in none."""
        self._begun += 1
        self._place = None if team is None else (team, size)

    def count(self) -> None:
        """One trial more has ended here: the launcher hears that the job gets on."""
        self.ended: int = self.ended + 1
        self._grow((self._age[0], self._age[1] + 1))


def run_lasting(search: Callable[[Progress], Found]) -> Found:
    """Calls ``search``, in an elastic job again and again until it comes to its end."""
    progress = Progress()
    if elastic_membership() is None:
        return search(progress)
    return run_fn(search)(progress)
