"""What is said to a command that cannot have been meant, and to words that other launchers know."""

import os
import re
from collections.abc import Sequence

_START = "a job starts with horovodrun -np 2 python train.py"
_MEANT = {
    "help": "horovodrun --help describes all options",
    "version": "horovodrun --version prints the version",
    "run": f"leave it out: {_START}",
    "launch": f"leave it out: {_START}",
    "start": f"leave it out: {_START}",
    "check": "horovodrun --check-build says what this installation can do",
    "check-build": "horovodrun --check-build says what this installation can do",
    "config": "horovodrun --print-config prints the value of each option",
}
_PYTHON = re.compile(r"python[0-9.]*")


def remark(command: Sequence[str], reads_terminal: bool) -> str | None:
    """Why a command cannot have been meant, and what was; None: it may have been."""
    if not command:
        return None
    word = command[0]
    import shutil  # only here: the help is to be quick

    if word in _MEANT and shutil.which(word) is None and not os.path.exists(word):
        return f"{word!r} is no program: {_MEANT[word]}"
    if len(command) == 1 and _PYTHON.fullmatch(os.path.basename(word)) and not reads_terminal:
        return f"{word}: name a script, as ranks have nothing to read (or let one: --stdin-rank 0)"
    return None
