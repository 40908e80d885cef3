"""Where checkpoints go, and how often: what the decorator is given, and the variables of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from horovod.bootstrap.variables import flag

DIRECTORY_VARIABLE, PICKLE_VARIABLE = "HOROVOD_CHECKPOINT_DIR", "HOROVOD_CHECKPOINT_PICKLE"
_SECONDS = 60.0


@dataclass(frozen=True)
class Options:
    """``path``: the folder, "" for no checkpoints. A checkpoint is due after ``commits`` commits or
    ``seconds`` seconds, where they are given. The newest ``keep`` are kept.
    """

    path: str = ""
    commits: int | None = None
    seconds: float | None = None
    keep: int = 3
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        if self.commits is not None and self.commits < 1:
            raise ValueError(f"every_commits={self.commits}: give at least 1")
        if self.seconds is not None and not self.seconds >= 0:
            raise ValueError(f"every_seconds={self.seconds}: give at least 0")
        if self.keep < 1:
            raise ValueError(f"keep={self.keep}: give at least 1")

    def completed(self, environ: Mapping[str, str]) -> Options:
        """With what the environment says where nothing else is given."""
        seconds = _SECONDS if self.commits is None and self.seconds is None else self.seconds
        may_pickle = self.allow_pickle or flag(PICKLE_VARIABLE, environ=environ)
        path = self.path or environ.get(DIRECTORY_VARIABLE, "")
        return replace(self, path=path, seconds=seconds, allow_pickle=may_pickle)

    def is_due(self, commits: int, seconds: float) -> bool:
        """So many commits and seconds after the last checkpoint."""
        by_commits = self.commits is not None and commits >= self.commits
        return by_commits or (self.seconds is not None and seconds >= self.seconds)
