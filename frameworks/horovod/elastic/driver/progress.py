"""Whether the generations of an elastic job get anywhere. Pure."""

from dataclasses import dataclass

FRUITLESS = 6
"""So many generations in a row without a new commit end the job: an error that comes back at the same
step, or a deadlock of the program, would come back for ever."""
SHORT_SECONDS = 300.0
"""One that has run for longer proves nothing: a program may commit once an hour."""


@dataclass
class Progress:
    """Counts the generations that have led to no new commit."""

    commits: int = 0
    _before: int = 0  # when the current generation was formed
    _formed: float = 0.0
    _ended: float = 0.0
    _fruitless: int = 0

    def on_commits(self, commits: int) -> None:
        """A worker knows of so many commits of the training."""
        self.commits = max(self.commits, commits)

    def on_end(self, now: float) -> None:
        """The first worker of the current generation trains no more."""
        self._ended = now

    def on_form(self, now: float, has_survivors: bool, was_asked: bool) -> bool:
        """A generation is about to be formed; ``has_survivors``: with a worker of the last one, which has
        told what it knows; ``was_asked``: that one was to end, as hosts came or went. Returns whether to
        give up.
        """
        if not has_survivors or self.commits > self._before or self._ended - self._formed > SHORT_SECONDS:
            self._fruitless = 0
        elif not was_asked:
            self._fruitless += 1
        self._before, self._formed = self.commits, now
        return self._fruitless >= FRUITLESS

    @property
    def is_stuck(self) -> bool:
        """Whether the last generation followed one that led to nothing: it is not left at trying again."""
        return self._fruitless > 0

    @property
    def reason(self) -> str:
        """Why the job ends."""
        return (
            f"{self._fruitless} generations in a row have ended without a new commit; what ended them comes "
            "back, as the errors of the ranks above show"
        )
