"""What this installation can do: the table, and the same for scripts."""

from __future__ import annotations

import json

from horovod.bootstrap import libraries
from horovod.bootstrap.errors import BootstrapError
from horovod.runner.adapters import adapters, core_location
from horovod.version import __version__

# Why --verbose shows a library as missing.
_ABSENT = dict.fromkeys(("NCCL", "DDL", "CCL"), " (not in this version)") | {
    "MPI": " (tensors do not travel by MPI; horovodrun --mpi starts ranks with mpirun)"
}
_OPERATIONS = "Tensor Operations"


def facts() -> dict[str, dict[str, bool]]:
    """By section, what is there. The controller that scripts know as Gloo, the one without MPI, is ours;
    under the operations, Gloo is the library of that name.
    """
    core = core_location() is not None
    ours = {"Shared memory": core, "TCP": core}
    others = dict.fromkeys(("NCCL", "DDL", "CCL", "MPI"), False) | {"Gloo": _gloo()[0]}
    return {
        "Frameworks": {adapter.framework: adapter.available for adapter in adapters()},
        "Controllers": {"MPI": False, "Gloo": core},
        _OPERATIONS: {**ours, **others},
    }


def describe(verbose: bool = False) -> str:
    """The table of ``horovodrun --check-build``: [X] works here, [ ] does not. ``verbose``: with the versions
    and places of frameworks, and with what is missing.
    """
    lines = [f"Horovod v{__version__}:"]
    notes = _notes() if verbose else {}
    absent = _ABSENT if verbose and core_location() is not None else {}
    told = {_OPERATIONS: {"Gloo": f" ({_gloo()[1]})"}} if verbose else {}
    for section, rows in facts().items():
        lines += ["", f"Available {section}:"]
        why = {**absent, **notes, **told.get(section, {})}
        lines += [f"    [{'X' if works else ' '}] {name}{why.get(name, '')}" for name, works in rows.items()]
    if core_location() is None:
        lines += ["", "The compiled core is missing: install the package with pip install ."]
    if not verbose:
        lines += ["", "Add --verbose to see versions, and what is missing behind a [ ]."]
    return "\n".join(lines)


def as_json() -> str:
    """The same as one JSON object, with the version of each framework and what is missing (null: nothing)."""
    report: dict[str, object] = {"version": __version__, "core": core_location()}
    for section, rows in facts().items():
        report[section.lower().replace(" ", "_")] = rows
    report["libraries"] = {"Gloo": dict(zip(("works", "note"), _gloo(), strict=True))}
    report["adapters"] = {
        adapter.framework: {
            "package": f"horovod.{adapter.package}",
            "version": adapter.version,
            "lacks": adapter.lacks,
        }
        for adapter in adapters()
    }
    return json.dumps(report, indent=2)


def _gloo() -> tuple[bool, str]:
    """Whether the library can be used, and its version and place, or why not."""
    try:
        library = libraries.find("gloo")
    except BootstrapError as error:
        return False, str(error)
    return True, f"{library.version}, by {library.path}; HOROVOD_CPU_OPERATIONS=GLOO uses it"


def _notes() -> dict[str, str]:
    return {
        adapter.framework: f" {adapter.version or ''} ({adapter.location})"
        if adapter.available
        else f" ({adapter.lacks})"
        for adapter in adapters()
    }
