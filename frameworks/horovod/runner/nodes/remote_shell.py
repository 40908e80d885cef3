"""A command of the user's in place of ssh: it runs a program on another host, and connects this process with
its standard input and output, such as ``kubectl exec -i {host} --``, ``docker exec -i {host}``, ``srun`` or
``pdsh``.
"""

import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence

from horovod.bootstrap.paths import absolute
from horovod.bootstrap.text import escaped

HOST = "{host}"
AGENT_PROGRAM = "horovodrun-agent"
_LINES = 3
_PLAIN = re.compile(r"[\w./:@%+=,-]+", re.ASCII)
_NOT_FOUND = 127  # as shells say it


def parse(text: str) -> tuple[str, ...]:
    """The words of the command. Raises ValueError for what is none, or names no host."""
    words = tuple(shlex.split(text))
    if not any(HOST in word for word in words):
        raise ValueError(f"{text!r} does not say where the name of the host stands: write {HOST} there")
    return words


def command(words: Sequence[str], host: str) -> list[str]:
    """Starts the agent on ``host``. Some of these commands hand their words to a shell there and some do not:
    the agent's have no character that a shell would take for its own.
    """
    paths = module_paths(os.environ)
    if not all(map(_PLAIN.fullmatch, paths)):
        paths = []
    return [*(word.replace(HOST, host) for word in words), *paths, *_agent()]


def module_paths(environ: Mapping[str, str]) -> list[str]:
    """The words that give the agent those of this host: it imports horovod before it can be told anything.
    No words: there are none.
    """
    found = []
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        folders = [absolute(each) for each in environ.get(name, "").split(os.pathsep) if each]
        found += [f"{name}={os.pathsep.join(folders)}"] if folders else []
    return ["env", *found] if found else []


def _agent() -> list[str]:
    """The program that is installed beside this Python; without one, the module, for which the folder of a
    login is a place to look for modules, too.
    """
    program = os.path.join(sysconfig.get_path("scripts"), AGENT_PROGRAM)
    return [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "horovod.runner.agent"]


def explain(words: Sequence[str], status: int | None, errors: str) -> str:
    """Why no agent came up, in one line."""
    said = _said(errors)
    if "No module named" in errors and "horovod" in errors:
        return f"horovod is not installed for {sys.executable} there, as it is here{said}"
    if status == _NOT_FOUND:
        return f"{_agent()[0]} is not there: install Python and horovod at the same place{said}"
    if status == 0:
        return (
            f"{words[0]} (--remote-shell) has ended before an agent has started: does it pass on stdin?{said}"
        )
    return f"{words[0]} (--remote-shell) ended with status {status}{said}"


def farewell(words: Sequence[str], status: int | None, errors: str) -> str:
    """Why an agent is gone that had come up."""
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with {status}"
    return f"{words[0]} (--remote-shell), which leads to its agent, {how}{_said(errors)}"


def silence(errors: str) -> str:
    """What may tell why nothing is heard; empty: nothing does."""
    return f"its remote shell has written{_said(errors)}" if _said(errors) else ""


def _said(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return f" ({escaped('; '.join(lines[-_LINES:]))})" if lines else ""
