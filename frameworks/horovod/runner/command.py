"""The user's command: found before anything is started, and a script of Python given its interpreter."""

import os
import re
import shutil
import sys
from collections.abc import Sequence

_PYTHON = re.compile(r"python[\d.]*")
_NOT_FOUND_STATUS, _NOT_EXECUTABLE_STATUS = 127, 126


class CommandError(ValueError):
    """There is no such program. ``status`` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def runnable(command: Sequence[str]) -> list[str]:
    """The command as it is started: ``train.py`` is run by the Python that runs this.

    Raises:
        CommandError: its first word is no program.
    """
    program = command[0]
    if shutil.which(program) is not None:
        return list(command)
    if os.path.isfile(program) and program.endswith(".py"):
        return [sys.executable, *command]
    if os.path.exists(program):
        raise CommandError(f"{program}: not executable", _NOT_EXECUTABLE_STATUS)
    advice = "; without it, a script runs with the Python of horovodrun" if _PYTHON.fullmatch(program) else ""
    raise CommandError(f"{program}: command not found{advice}", _NOT_FOUND_STATUS)
