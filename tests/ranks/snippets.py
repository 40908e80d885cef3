"""The Python code in README.md and docs/, as programs that ranks can run.

Blocks of a page share one namespace, so a page reads like one program. A block that begins with the import of
a framework or of horovod begins a new one. Comments of HTML, which no reader sees, add what a block needs, in
its program:

    <!-- setup:                        code that runs before the next block
    model = ...
    -->
    <!-- not run: why -->              the next block is only compiled
    <!-- ranks: 4 -->                  so many ranks run the page's programs from here on; without it, 2.
                                       0: they are no rank's, because they start a job themselves
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet", "jax")

_PART = re.compile(
    r"^```python[^\n]*\n(?P<block>.*?)^```$"
    r"|^<!-- setup:\n(?P<setup>.*?)^-->$"
    r"|^<!-- not run: (?P<reason>[^\n]+) -->$"
    r"|^<!-- ranks: (?P<ranks>\d+) -->$",
    re.MULTILINE | re.DOTALL,
)
_BEGIN = re.compile(r"import (horovod|torch|tensorflow|keras|mxnet|jax)\b")


@dataclass
class Program:
    """``pieces``: (line of the page, code), to be executed in turn in one namespace."""

    page: str
    number: int  # of the page's programs
    ranks: int
    pieces: list[tuple[int, str]] = field(default_factory=list)

    @property
    def framework(self) -> str:
        """Of which the ranks must have loaded the adapter."""
        code = "".join(code for _, code in self.pieces)
        imported = re.findall(r"^\s*import (?:horovod\.)?(\w+)", code, re.MULTILINE)
        return next((name for name in FRAMEWORKS if name in imported), "none")

    @property
    def title(self) -> str:
        """The page, and the line where the program begins."""
        return f"{self.page}:{self.pieces[0][0]}"

    def compiled(self) -> list:
        """The code of each piece; an error in it has the line of the page."""
        return [
            compile("\n" * (line - 1) + code, str(ROOT / self.page), "exec") for line, code in self.pieces
        ]


def programs(path: Path) -> list[Program]:
    """All programs of a page. SyntaxError for a block that is no Python, also for one that is not run."""
    text, found, ranks, skip = path.read_text(encoding="utf-8"), [], 2, False
    ahead = []  # of the next block
    page = path.relative_to(ROOT).as_posix()
    for part in _PART.finditer(text):
        code = part["block"] or part["setup"]
        if part["ranks"]:
            ranks = int(part["ranks"])
        elif part["reason"]:
            skip = True
        else:
            piece = (text.count("\n", 0, part.start()) + 2, code)
            if skip:
                Program(page, 0, 0, [piece]).compiled()
            elif part["setup"]:
                ahead.append(piece)
            else:
                ahead.append(piece)
                if not found or any(_BEGIN.match(code) for _, code in ahead):
                    found.append(Program(page, len(found), ranks))
                found[-1].pieces += ahead
                ahead = []
            skip = False
    return found


def programs_with(*frameworks: str) -> list[Program]:
    """Those of all pages that are for ranks with one of these."""
    return [program for program in _all() if program.ranks > 0 and program.framework in frameworks]


def programs_without_ranks() -> list[Program]:
    """Those of all pages that start a job themselves."""
    return [program for program in _all() if program.ranks == 0]


def _all() -> list[Program]:
    return [program for path in PAGES for program in programs(path)]


def run(page: str, number: int, folder: str) -> None:
    """On a rank, if it is for ranks: the program of that number of a page; what it writes lies in
    ``folder``.
    """
    os.chdir(folder)
    namespace = {"__name__": "__main__"}
    for code in programs(ROOT / page)[number].compiled():
        exec(code, namespace)
