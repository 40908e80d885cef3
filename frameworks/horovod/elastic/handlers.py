"""Attributes of a state that are more than values: a *handler* knows how to save, restore and synchronize
one object in place, such as a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.common import basics
from horovod.common.set_agreement import exchange
from horovod.elastic.batches import ElasticBatches
from horovod.elastic.checkpoint.errors import UnstorableObjectError
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.rate import RateScale
from horovod.elastic.sampling import Processed, Progress
from horovod.elastic.state import ObjectState, Winner

_NAME = "horovod.elastic.progress"


class StateHandler:
    """Saves, restores and synchronizes ``value``. Derive from it, and save in ``__init__``.

    Attributes:
        value: the object.
        winner: whose state ``sync`` is to give to all ranks.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.winner = Winner()

    def set_value(self, value: Any) -> None:
        """Handles another object from now on."""
        self.value = value
        self.save()

    def save(self) -> None:
        """Keeps a copy of the state of ``value``."""
        raise NotImplementedError

    def restore(self) -> None:
        """Gives ``value`` the state that was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives ``value`` on all ranks the state that it has on the rank ``winner.rank``; does not save."""
        raise NotImplementedError

    def contents(self) -> Any:
        """What was saved last, for a checkpoint: tensors, numbers, text, and lists, tuples and dictionaries
        of them. Its tensors need not be copies; see ``lend``.
        """
        raise UnstorableObjectError(
            f"{type(self).__name__} cannot write a {type(self.value).__name__} to a checkpoint: it has to "
            "define contents() and load()"
        )

    def lend(self) -> None:
        """Leaves the tensors of ``contents`` as they are, whatever is saved, until the next call."""

    def load(self, contents: Any) -> None:
        """Gives ``value`` the state that ``contents`` has told of, in another job; does not save."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts ``value`` to the new ranks; may not wait for them."""

    def differs_between_ranks(self) -> bool:
        """Whether ranks may hold different values after the same step; the same answer on all of them."""
        return False


HandlerMaker = Callable[[Any], StateHandler]
"""Makes the handler of an object: a class of them, mostly."""


class IndicesHandler(StateHandler):
    """Of ``ElasticIndices``. What any rank has processed is processed for all."""

    value: ElasticIndices

    def __init__(self, value: ElasticIndices) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = self.value.progress

    def restore(self) -> None:
        self.value.go_back(self._saved)

    def sync(self) -> None:
        reports = {0: self.value.report}
        if basics.is_initialized() and basics.size() > 1:
            reports = {rank: _progress(told) for rank, told in exchange(self.value.report, _NAME).items()}
        others = [report for rank, report in reports.items() if rank in self.winner.holders]
        self.value.unite(reports[self.winner.rank], others)

    def contents(self) -> Any:
        processed = self.value.processed_at(self._saved)
        return {"epoch": self._saved.epoch, "first": processed.first, "more": list(processed.more)}

    def load(self, contents: Any) -> None:
        processed = Processed(contents["first"], tuple(contents["more"]))
        self.value.go_back(Progress(contents["epoch"], processed))

    def reset(self) -> None:
        self.value.reset()

    def differs_between_ranks(self) -> bool:
        return self.value.uneven == "keep"  # who has joined does not see the last batches of the others


class PlainHandler(StateHandler):
    """Of an object whose ``state_dict`` has numbers and text alone, equal on all ranks after the same step,
    and which adapts to the ranks by ``reset``.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = dict(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        mine = self.value.state_dict()
        if basics.is_initialized() and basics.size() > 1:
            mine = exchange(mine, _NAME)[self.winner.rank]
        self.value.load_state_dict(mine)

    def contents(self) -> Any:
        return self._saved

    def load(self, contents: Any) -> None:
        self.value.load_state_dict(contents)

    def reset(self) -> None:
        self.value.reset()


_MAKERS: Sequence[tuple[type, HandlerMaker]] = (
    (ElasticIndices, IndicesHandler),
    (ElasticBatches, PlainHandler),
    (RateScale, PlainHandler),
)


def maker_for(value: Any) -> HandlerMaker | None:
    """What makes a handler for an object that needs no framework; None for other objects."""
    return next((make for kind, make in _MAKERS if isinstance(value, kind)), None)


class HandlerState(ObjectState):
    """A state whose attributes are handled by handlers where there is one for their type.

    Args:
        bcast_object: as for ``State``.
        get_rank: as for ``State``.
        **kwargs: names and first values of the attributes.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        self._handlers: dict[str, StateHandler] = {}
        self._makers: dict[str, HandlerMaker] = {}
        super().__init__(bcast_object, get_rank, **kwargs)

    def _maker_for(self, name: str, value: Any) -> HandlerMaker | None:
        """What makes a handler for an attribute; None for one without."""
        return maker_for(value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()) or name in self.__dict__.get("_handlers", ()):
            self._handle(name, value)
        super().__setattr__(name, value)

    def _handle(self, name: str, value: Any) -> None:
        """An attribute gets a value."""
        handler = self._handlers.get(name)
        make = self._maker_for(name, value)
        if make is None:
            self._handlers.pop(name, None)
            self._names[name] = None
        elif handler is None or self._makers[name] != make:
            self._names.pop(name, None)
            self._handlers[name] = make(value)
            self._makers[name] = make
        elif handler.value is not value:
            handler.set_value(value)

    def save(self) -> None:
        """See ``State``."""
        super().save()  # first: it can fail, and then nothing is saved
        for handler in self._handlers.values():
            handler.save()

    def restore(self) -> None:
        """See ``State``. Models, optimizers and the like are restored in place."""
        super().restore()
        for handler in self._handlers.values():
            handler.restore()

    def reset(self) -> None:
        """See ``State``."""
        for handler in self._handlers.values():
            handler.reset()

    def saved_values(self) -> dict[str, tuple[Any, bool]]:
        """See ``checkpoint.durability.Subject``."""
        saved = super().saved_values()
        for name, handler in self._handlers.items():
            try:
                saved[name] = (handler.contents(), True)
            except UnstorableObjectError as error:
                raise UnstorableObjectError(f"{name} of the state: {error}") from error
        return saved

    def lend(self) -> None:
        """See ``checkpoint.durability.Subject``."""
        for handler in self._handlers.values():
            handler.lend()

    def load_values(self, values: Mapping[str, Any]) -> None:
        """See ``checkpoint.durability.Subject``."""
        super().load_values(values)
        for name, handler in self._handlers.items():
            if name in values:
                handler.load(values[name])

    def _differs_between_ranks(self) -> bool:
        return any(handler.differs_between_ranks() for handler in self._handlers.values())

    def _parts(self) -> list[str]:
        return [*super()._parts(), *self._handlers]

    def _receive(self, winner: Winner) -> None:
        super()._receive(winner)
        for handler in self._handlers.values():
            handler.winner = winner
            handler.sync()


def _progress(told: list[Any]) -> Progress:
    epoch, (first, more), ranks, rank, done = told
    return Progress(epoch, Processed(first, tuple(more)), ranks, rank, done)
