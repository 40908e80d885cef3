"""How the output of the ranks is shown: whose, behind which prefix, in which colour."""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass

from .output import LinePrefixer, TerminalPrefixer
from .sink import Sink

# Of the eight that every terminal has: readable on light and on dark, and no red, which looks like an error.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


@dataclass(frozen=True)
class Display:
    """What the user has asked for.

    ``ranks``: those whose output is shown; None: all. ``stdin_rank``: the one that reads the standard input
    of the launcher, whose prompts are shown although their line has not ended.
    """

    timestamps: bool = False
    ranks: Collection[int] | None = None
    stdin_rank: int | None = None

    def shows(self, rank: int) -> bool:
        """Whether the output of this rank is shown."""
        return self.ranks is None or rank in self.ranks

    def prefixer(self, rank: int, stream: str, sink: Sink) -> LinePrefixer:
        """What puts the prefix in front of the lines of one stream of a rank."""
        label = f"[{rank}]<{stream}>:"
        if not sink.is_terminal:
            return LinePrefixer(label, self.timestamps)
        if _is_coloured():
            label = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{label}\x1b[0m"
        return TerminalPrefixer(label, self.timestamps, lambda: shutil.get_terminal_size().columns)


def _is_coloured() -> bool:
    """As users ask for it of every program (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
