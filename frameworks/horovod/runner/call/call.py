"""A call as the launcher has it: the function that it serves to the ranks, and what comes of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from horovod.bootstrap.store.server import StoreServer

from ..arbitration import Cause
from . import transfer


@dataclass
class Outcome:
    """How the job ended, as the caller is told. ``sent``: by rank, in the order in which they began, the
    kind, offset and size of what each has sent in full.
    """

    refusal: str = ""  # why the options cannot be
    size: int = 0
    culprit: int | None = None  # the rank whose failure ended the job
    report: str = ""  # on that failure
    sent: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """For ``decoded``."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decoded(data: bytes) -> "Outcome":
        """No bytes: those of a launcher that could not say anything."""
        fields: dict[str, Any] = json.loads(data) if data else {}
        sent = {int(rank): tuple(region) for rank, region in fields.pop("sent", {}).items()}
        return Outcome(**fields, sent=sent)


class Call:
    """What a job has besides when it runs a function. ``function``, ``results``: descriptors of files.
    ``on_note`` gets what ranks tell while they work, on the thread of the store.
    """

    def __init__(self, function: int, results: int, on_note: Callable[[bytes], None]) -> None:
        self.outcome = Outcome()
        self.ranks: Mapping[int, int] | None = None  # in an elastic job, of the workers whose word counts
        self._function = transfer.content(function)
        self._results = transfer.Results(results, on_note)

    def attach(self, store: StoreServer) -> None:
        """Before the store of the job is started."""
        transfer.publish(store, self._function)
        self._results.attach(store)

    def on_failure(self, cause: Cause, report: bytes) -> None:
        """The caller raises what others print."""
        self.outcome.culprit = cause.rank
        self.take_report(report)

    def take_report(self, report: bytes) -> None:
        """The caller raises it."""
        self.outcome.report = report.decode(errors="backslashreplace")

    def finish(self) -> Outcome:
        """After the job."""
        for sender, region in self._results.complete().items():
            rank = sender if self.ranks is None else self.ranks.get(sender)
            if rank is not None:
                self.outcome.sent[rank] = (region.kind, region.offset, region.size)
        if self.ranks is not None:
            self.outcome.size = len(self.ranks)
        return self.outcome
