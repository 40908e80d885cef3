"""What a task of Spark does on its executor: it runs an agent, whose ranks are the work."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark import SparkFiles, TaskContext

from horovod.runner.engines import AgentProcess

_OWN = ("PYTHON_WORKER_FACTORY_SECRET", "OMP_NUM_THREADS")
"""Of the worker of Spark alone: its password, and threads for one core, when a rank may use more."""


@dataclass(frozen=True)
class Terms:
    """What all tasks of a job get: where the launcher is, the secret of its hosts, and variables for the
    ranks. ``goes_on``: a task that Spark starts again is another host, of an elastic job.
    """

    address: str
    secret: bytes = field(repr=False)
    variables: Mapping[str, str]
    goes_on: bool = False


def serve(terms: Terms, index: int) -> list[str]:
    """Runs the ranks of one task until the job has ended.

    Returns:
        Why it has not run them, if it has not: an exception would have Spark do it again.
    """
    attempt = TaskContext.get().attemptNumber()
    if attempt and not terms.goes_on:
        return [f"task {index} had run before, and a training is not repeated"]
    agent = start_agent(terms, index, attempt)
    status = agent.wait()
    if status and terms.goes_on:
        raise RuntimeError(f"the agent of task {index} ended with status {status}")  # Spark starts another
    return []


def start_agent(terms: Terms, index: int, attempt: int = 0) -> AgentProcess:
    """That of a task, as a child of this process."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OWN}
    environ = {**inherited, "PYTHONPATH": _python_path(), **terms.variables}
    return AgentProcess(terms.address, _name(index, attempt), 1, terms.secret, environ, index)


def _name(index: int, attempt: int) -> str:
    """Of a host in the job."""
    host = re.sub(r"[^\w.-]", "-", os.uname().nodename, flags=re.ASCII).strip("-.") or "host"
    return f"{host}.task-{index}" + (f".attempt-{attempt}" if attempt else "")


def _python_path() -> str:
    """The modules that Spark has brought here, and what it has found here itself."""
    brought = [path for path in sys.path if path and _is_below(path, SparkFiles.getRootDirectory())]
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(os.path.abspath(path) for path in [*brought, *own] if path)


def _is_below(path: str, folder: str) -> bool:
    folder = os.path.abspath(folder)
    return os.path.commonpath([folder, os.path.abspath(path)]) == folder
