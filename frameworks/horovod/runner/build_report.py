"""What this installation can do: the table, and the same for scripts."""

from __future__ import annotations

import json
import os
from typing import Any

from horovod.bootstrap import gpu_libraries, libraries
from horovod.bootstrap.text import escaped
from horovod.runner.adapters import adapters, core_location
from horovod.runner.gpus import DriverError, gpus
from horovod.version import __version__

# Why --verbose shows a library as missing.
_ABSENT = dict.fromkeys(("DDL", "CCL"), " (not in this version)")
# Of those that are there.
_CONTROLLER = {
    "MPI": " (HOROVOD_CONTROLLER=mpi: it carries the job's address and secret, and nothing later)",
    "Gloo": " (the default: runs without MPI, and without the library of that name)",
}
_OPERATIONS = "Tensor Operations"
_LIBRARIES = ("MPI", "Gloo")


def facts() -> dict[str, dict[str, bool]]:
    """By section, what is there. The controller that scripts know as Gloo, the one without MPI, is ours; MPI
    is one for HOROVOD_CONTROLLER=mpi. Under the operations, Gloo is the library of that name.
    """
    core = core_location() is not None
    libraries_found = {name: bool(libraries.installed(name.lower())) for name in _LIBRARIES}
    ours = {"Shared memory": core, "TCP": core}
    others = {"NCCL": core and bool(_nccl()), "DDL": False, "CCL": False}
    others |= libraries_found
    return {
        "Frameworks": {adapter.framework: adapter.available for adapter in adapters()},
        "Controllers": {"MPI": core and libraries_found["MPI"], "Gloo": core},
        _OPERATIONS: {**ours, **others},
    }


def describe(verbose: bool = False) -> str:
    """The table of ``horovodrun --check-build``: [X] works here, [ ] does not. ``verbose``: with the versions
    and places of frameworks, and with what is missing.
    """
    lines = [f"Horovod v{__version__}:"]
    notes = _notes() if verbose else {}
    absent = _ABSENT if verbose and core_location() is not None else {}
    told = {_OPERATIONS: _libraries()} if verbose else {}
    for section, rows in facts().items():
        lines += ["", f"Available {section}:"]
        if verbose and section == "Controllers":
            told[section] = {name: _controller(name, works) for name, works in rows.items()}
        why = {**absent, **notes, **told.get(section, {})}
        lines += [f"    [{'X' if works else ' '}] {name}{why.get(name, '')}" for name, works in rows.items()]
    if verbose:
        lines += ["", "GPUs of this machine:", *(f"    {line}" for line in _gpu_lines())]
    if core_location() is None:
        lines += ["", "The compiled core is missing: install the package with pip install ."]
    if not verbose:
        lines += ["", "Add --verbose to see versions, and what is missing behind a [ ]."]
    return "\n".join(lines)


def as_json() -> str:
    """The same as one JSON object, with the version of each framework and what is missing (null: nothing)."""
    report: dict[str, Any] = {"version": __version__, "core": core_location()}
    for section, rows in facts().items():
        report[section.lower().replace(" ", "_")] = rows
    report["libraries"] = {
        name: [library._asdict() for library in libraries.installed(name.lower())] for name in _LIBRARIES
    }
    report["libraries"]["NCCL"] = _nccl()
    report["gpus"], report["gpus_lack"] = _gpus()
    report["adapters"] = {
        adapter.framework: {
            "package": f"horovod.{adapter.package}",
            "version": adapter.version,
            "lacks": adapter.lacks,
        }
        for adapter in adapters()
    }
    return json.dumps(report, indent=2)


def _libraries() -> dict[str, str]:
    """Version and place of each, or how to get it."""
    shown = {name: f" ({_library(name.lower())})" for name in _LIBRARIES}
    found = [f"{library['version']}, by {library['path']}" for library in _nccl()]
    return {**shown, "NCCL": f" ({'; '.join(found) or gpu_libraries.how_to_get(os.environ)})"}


def _controller(name: str, works: bool) -> str:
    """What it does, or how to get it; that the core is missing is said apart."""
    return _CONTROLLER[name] if works or name != "MPI" else f" ({libraries.how_to_get('mpi')})"


def _library(name: str) -> str:
    found = [f"{library.version}, by {library.path}" for library in libraries.installed(name)]
    return "; ".join(found) or libraries.how_to_get(name)


def _nccl() -> list[dict[str, str]]:
    """NCCL or RCCL, in the form of the other libraries: none, or one."""
    found = gpu_libraries.find(os.environ)
    code = gpu_libraries.version_code(found.library) if found.name else 0
    version = gpu_libraries.version_text(code)
    return [{"name": found.name, "version": version, "path": found.library}] if code else []


def _gpus() -> tuple[list[str], str | None]:
    """The names of the GPUs, and why there are none."""
    for name in ("nccl", "rccl"):
        if driver := gpu_libraries.find_driver(name, os.environ):
            try:
                return gpus(name, driver), None
            except DriverError as error:
                return [], escaped(f"{driver}: {error}")
    return [], "no driver of a GPU is installed"


def _gpu_lines() -> list[str]:
    found, lacking = _gpus()
    return [escaped(name) for name in found] or [f"none ({lacking or 'the driver sees none'})"]


def _notes() -> dict[str, str]:
    return {
        adapter.framework: f" {adapter.version or ''} ({adapter.location})"
        if adapter.available
        else f" ({adapter.lacks})"
        for adapter in adapters()
    }
