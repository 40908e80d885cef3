"""Functions that are sent to ranks keep their files and source lines, for tracebacks there.

cloudpickle leaves out both: a function of a notebook has no file, and a rank may have another one of that
name.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import CodeType
from typing import Any

_LONGEST = 1 << 20  # characters of a file that are sent along


class Sources:
    """The files of the functions that a pickler has met."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def reducer(self, reduce: Callable[[CodeType], Any]) -> Callable[[CodeType], Any]:
        """Pickles code as ``reduce`` does, with the name of its file."""

        def reduced(code: CodeType) -> Any:
            self._names[code.co_filename] = None
            _, arguments = reduce(code)
            return _restored, (arguments, code.co_filename)

        return reduced

    def texts(self) -> dict[str, list[str]]:
        """The lines of each file that can be read, by its name."""
        found = {name: linecache.getlines(name) for name in self._names}
        return {name: lines for name, lines in found.items() if 0 < sum(map(len, lines)) <= _LONGEST}


def show(texts: dict[str, list[str]]) -> None:
    """On a rank: tracebacks show these lines."""
    for name, lines in texts.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _restored(arguments: tuple[Any, ...], name: str) -> CodeType:
    return CodeType(*arguments).replace(co_filename=name)
