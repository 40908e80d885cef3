"""The settings that the engine reads from the environment, as the core's one table lists them."""

from __future__ import annotations

import os
from typing import NamedTuple

from horovod import _core


class Setting(NamedTuple):
    """One row of the table. ``type``: integer, bytes, number, flag, choice, path, text, list or secret."""

    variable: str
    type: str
    default: str
    help: str

    def current(self) -> str:
        """What the environment says now, or the default. The engine itself reads it once, in ``init``."""
        return os.environ.get(self.variable, self.default)


def settings() -> list[Setting]:
    """All settings, in the order of the core's table."""
    return [Setting(*row) for row in _core.settings()]


def setting(variable: str) -> Setting:
    """The row of one variable; KeyError when there is none of that name."""
    for row in settings():
        if row.variable == variable:
            return row
    raise KeyError(variable)
