"""Makes the events of one process, an MPI launcher, those of the ranks that it runs."""

import re
from collections.abc import Callable, Collection, Sequence

from horovod.bootstrap.store.verdicts import Kind, Verdict

from ..ending import Exit
from ..nodes.node import STREAMS, Events
from ..output import LinePrefixer, Tail
from ..sink import Sink
from .outcome import Blame, Outcome, after_silence, blame, outcome
from .tagged import Untangler


class Testimony:
    """What is known of the ranks beside their exits: that the launcher does not tell who failed, or what the
    ranks wrote of one that they gave up on.
    """

    def __init__(self) -> None:
        self.verdict: Verdict | None = None

    def ranks_ended(self, ranks: Collection[int]) -> None:
        """Nobody waits for ranks here: their store is in rank 0."""

    def verdicts(self, ended: Collection[int], seconds: float) -> list[Verdict]:
        """See ``supervisor.Testimony``."""
        return [] if self.verdict is None else [self.verdict]

    def late(self) -> Verdict | None:
        """Nobody watches the start here but the ranks."""
        return None

    def remarks(self, size: int) -> list[str]:
        """None: the ranks say themselves what they have to say."""
        return []


class Relay:
    """Receives the events of a node that runs the launcher, and passes those of the ranks on to ``events``.

    Args:
        events: what hears of the ranks.
        sinks: where the launcher's own words go.
        tag: what the launcher puts in front of the output of a rank.
        name: of the launcher, for messages.
        size: of the job.
        testimony: is told when nobody knows which rank failed.
    """

    def __init__(
        self,
        events: Events,
        sinks: Sequence[Sink],
        tag: "re.Pattern[bytes]",
        name: str,
        size: int,
        testimony: Testimony,
    ) -> None:
        self._events = events
        self._sinks = dict(zip(STREAMS, sinks, strict=True))
        self._untanglers = {stream: Untangler(tag) for stream in STREAMS}
        self._own_lines = {stream: LinePrefixer("") for stream in STREAMS}
        self._own_words = {stream: Tail() for stream in STREAMS}
        self._last_words = [Tail() for _ in range(size)]  # of each rank, on stderr
        self.drain: Callable[[], None] = lambda: None  # has ``output`` called with all that there is
        self._name = name
        self._size = size
        self._testimony = testimony

    def started(self, rank: int, pid: int) -> None:
        """The launcher runs; where its ranks are is its own knowledge."""

    def has_room(self, rank: int, stream: str) -> bool:
        """Whether the output is welcome; that of all ranks goes to the same place."""
        return self._events.has_room(0, stream)

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """The next bytes of the launcher; no bytes: the end."""
        untangler = self._untanglers[stream]
        for whose, piece in untangler.feed(data) if data else untangler.end():
            if whose is not None and whose < self._size:
                self._events.output(whose, stream, piece)
                if stream == "stderr":
                    self._last_words[whose].feed(piece)
            else:
                self._own_words[stream].feed(piece)
                self._sinks[stream].put(self._own_lines[stream].feed(piece))
        if not data:
            self._end(stream)

    def ended(self, exits: Sequence[Exit]) -> None:
        """The launcher has ended. Who of the ranks failed first follows from what it said last."""
        self.drain()
        code = exits[0].code
        words = "".join(tail.text() for tail in self._own_words.values())
        blamed = blame((tail.text() for tail in self._last_words), self._size) if code > 0 else None
        found = after_silence(outcome(code, words, self._size), blamed)
        first = 0 if found.rank is None else found.rank
        reason = self._reason(code) if found.rank is None and code != 0 else ""
        self._testimony.verdict = self._verdict(found, reason, blamed)
        untold = f"{self._name} does not tell" if code != 0 else ""
        others = [Exit(rank, 0, untold=untold) for rank in range(self._size) if rank != first]
        self._events.ended([Exit(first, found.code, untold=reason), *others])

    def _verdict(self, found: Outcome, reason: str, blamed: Blame | None) -> Verdict | None:
        """What the report is to say beside how rank ``found.rank`` ended: of one that others gave up on. Who
        is silent may only have been slow where a signal ended a rank. Whoever has left or died explains what
        another rank did, not what itself did.
        """
        first = 0 if found.rank is None else found.rank
        if blamed is not None and self._counts(blamed, found):
            return Verdict(first, blamed.kind, blamed.rank, blamed.reason)
        return Verdict(first, Kind.FAULT, None, reason) if reason else None

    @staticmethod
    def _counts(blamed: Blame, found: Outcome) -> bool:
        if blamed.kind == Kind.SILENT:
            return found.code > 0
        untold_death = found.rank is None and blamed.kind == Kind.DIED
        return blamed.rank != found.rank and (found.code > 0 or untold_death)

    def _reason(self, code: int) -> str:
        if code < 0:
            return f"{self._name} itself was killed by signal {-code}"
        return f"{self._name} does not tell which rank failed; its own messages are above"

    def _end(self, stream: str) -> None:
        if rest := self._own_lines[stream].take_rest():
            self._sinks[stream].put(rest + b"\n")
        for number in range(self._size):
            self._events.output(number, stream, b"")
