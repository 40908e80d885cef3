"""The table of fault cases: what happens to a job, what it must do then, and in which time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stage import Stage

LAYERS = {
    "P": "process",
    "N": "network",
    "C": "collective semantics",
    "R": "resources",
    "L": "launcher and signals",
    "E": "elastic training",
    "I": "input and security",
}


class NotHere(Exception):
    """This machine lacks something that the case needs; the text says what."""


@dataclass(frozen=True)
class Case:
    """One fault. ``play`` brings it about and raises an AssertionError when the job falls short.

    ``limit`` is in seconds from the fault to the end of the job (see Trial.end), None where nothing has to
    end. ``quick`` cases are part of every test run.
    """

    number: int
    layer: str
    title: str
    limit: float | None = None
    quick: bool = False
    play: Callable[[Stage], None] | None = None
    needs: str = field(default="")  # why it cannot be shown on one host


TABLE: dict[int, Case] = {}


def case(
    number: int, layer: str, title: str, limit: float | None = None, quick: bool = False
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Enters the decorated function into the table."""

    def enter(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        _add(Case(number, layer, title, limit, quick, play))
        return play

    return enter


def elsewhere(number: int, layer: str, title: str, needs: str) -> None:
    """Enters a case that one host cannot show."""
    _add(Case(number, layer, title, needs=needs))


def _add(new: Case) -> None:
    assert new.number not in TABLE, f"case {new.number} is there twice"
    assert new.layer in LAYERS
    TABLE[new.number] = new
