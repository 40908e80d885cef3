"""The ranks that run one trial at a time: how they ask as one, and how they end a trial together.

A rank whose objective has ended, well or not, joins the set: it takes part in what the others still do, with
zeros, until all have ended. So a rank that fails alone leaves nobody waiting, and the others hear of it at
their next word with the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from horovod.common import basics
from horovod.common.collective.byte_objects import objects, operations
from horovod.common.process_sets import ProcessSet
from horovod.search.calls import RefusedError


class TeamError(RuntimeError):
    """Another rank of the team has ended its part of this trial, well or not; the trial ends with it."""


class Way(Protocol):
    """To the study; see ``calls``."""

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer. Raises RefusedError."""


class Team:
    """The ranks of ``process_set``; the first of them speaks with the study by ``way``."""

    def __init__(self, process_set: ProcessSet, way: Way) -> None:
        self.process_set = process_set
        ranks = process_set.ranks
        self.ranks = list(range(basics.size())) if ranks is None else ranks
        self.is_leader = basics.rank() == self.ranks[0]
        self._way = way

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of the study, on all ranks. Raises RefusedError on all, or ValueError where a rank asks
        something else than the first one.
        """
        asked = " ".join([name, *map(str, arguments[1:3])] if name == "suggest" else [name])
        said = b""
        if self.is_leader:
            try:
                said = json.dumps({"is": self._way.call(name, *arguments), "asked": asked}).encode()
            except RefusedError as error:
                said = json.dumps({"error": str(error), "asked": asked}).encode()
        answer = json.loads(objects.broadcast_object(said, self.ranks[0], process_set=self.process_set))
        if answer["asked"] != asked:
            raise ValueError(
                f"rank {basics.rank()} calls {asked!r} where rank {self.ranks[0]} calls {answer['asked']!r}: "
                "the ranks of a trial call its methods together, in the same order"
            )
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["is"]

    def leave(self) -> None:
        """The first rank speaks for all, and none waits for another: the search may be over without it."""
        if self.is_leader:
            self._way.call("leave")

    def mean(self, values: Sequence[float]) -> list[float]:
        """The mean of each over the ranks. Raises TeamError where a rank takes no part any more."""
        given = objects.allgather_object(list(values), process_set=self.process_set)
        if len(given) < len(self.ranks):
            raise TeamError("another rank of this trial has failed or returned: report on all ranks")
        return [sum(column) / len(given) for column in zip(*given, strict=True)]

    def end_trial(self, outcome: dict[str, Any]) -> list[dict[str, Any]]:
        """Waits until the trial has ended on all ranks. Returns how, in the order of the ranks."""
        operations.join_set(self.process_set)
        return objects.allgather_object({"rank": basics.rank(), **outcome}, process_set=self.process_set)
