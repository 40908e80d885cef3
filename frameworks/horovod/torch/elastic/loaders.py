"""Data loaders that know where they are in an epoch, such as ``StatefulDataLoader`` of torchdata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from horovod.common import basics
from horovod.common.set_agreement import exchange
from horovod.elastic.handlers import StateHandler
from horovod.elastic.indices import ElasticIndices
from horovod.torch.elastic.copies import Copies
from horovod.torch.functions import broadcast_object

_NAME = "horovod.elastic.loader"


@runtime_checkable
class StatefulLoader(Protocol):
    """What is iterated over, and has a state in the middle of it: loaders and samplers."""

    def __iter__(self) -> Iterator[Any]:
        """Goes on from the state that was loaded last, or begins an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Where this rank is."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iteration begins there."""


class LoaderStateHandler(StateHandler):
    """Of a ``StatefulLoader``. Its state tells how far this rank is in its part of the data, and there are as
    many parts as ranks. With as many ranks as before, each goes on where it is, and a new one where the
    winner is. With another number of ranks the epoch begins anew on all of them.

    A loader with an ElasticSampler has nothing to keep: the sampler knows what is left, and each iteration
    begins there. What the loader would add is how far the sampler was when a batch was prefetched.
    """

    value: StatefulLoader

    def __init__(self, value: StatefulLoader) -> None:
        super().__init__(value)
        self._take(value)

    def set_value(self, value: StatefulLoader) -> None:
        self.value = value
        self._take(value)

    def _take(self, value: StatefulLoader) -> None:
        self._is_elastic = _is_elastic(value)
        self._copies, self._first = Copies(), Copies()
        if not self._is_elastic:
            self._first.take(value.state_dict())
        self.save()

    def save(self) -> None:
        self._place = _place()
        if not self._is_elastic:
            self._copies.take(self.value.state_dict())

    def restore(self) -> None:
        if not self._is_elastic:
            self.value.load_state_dict(self._copies.newest.new_copy())

    def sync(self) -> None:
        if self._is_elastic:
            return
        mine = self.value.state_dict()
        self.value.load_state_dict(self._agreed(mine))
        self._place = _place()

    def _agreed(self, mine: dict[str, Any]) -> dict[str, Any]:
        """The state to go on from, of this rank's, which is ``mine``."""
        rank, ranks = _place()
        told = {rank: [*self._place]}
        if ranks > 1:
            told = exchange(told[rank], _NAME)
        if told[self.winner.rank][1] != ranks:
            return self._first.newest.new_copy()
        holders = {each for each in self.winner.holders if told[each] == [each, ranks]}
        if len(holders) < ranks:
            found = broadcast_object(mine, self.winner.rank, _NAME)
            mine = mine if rank in holders else found
        return mine

    def contents(self) -> Any:
        if self._is_elastic:
            return None
        return {"place": list(self._place), "state": self._copies.newest.kept}

    def lend(self) -> None:
        self._copies.lend()

    def load(self, contents: Any) -> None:
        if contents is not None and not self._is_elastic:
            self._place = tuple(contents["place"])
            self.value.load_state_dict(contents["state"])

    def differs_between_ranks(self) -> bool:
        return not self._is_elastic


def _is_elastic(loader: Any) -> bool:
    """Whether the samples come from an ElasticSampler."""
    batches = getattr(loader, "batch_sampler", None)
    samplers = (loader, getattr(loader, "sampler", None), getattr(batches, "sampler", None))
    return any(isinstance(sampler, ElasticIndices) for sampler in samplers)


def _place() -> tuple[int, int]:
    return (basics.rank(), basics.size()) if basics.is_initialized() else (0, 1)
