"""What this installation can do: the table, and the same for scripts."""

from __future__ import annotations

import json

from horovod.runner.adapters import adapters, core_location
from horovod.version import __version__

# Why --verbose shows a library as missing.
_ABSENT = dict.fromkeys(("NCCL", "DDL", "CCL", "Gloo"), " (not in this version)") | {
    "MPI": " (tensors do not travel by MPI; horovodrun --mpi starts ranks with mpirun)"
}


def facts() -> dict[str, dict[str, bool]]:
    """By section, what is there. The controller that scripts know as Gloo, the one without MPI, is ours;
    under the operations, Gloo is the library of that name.
    """
    core = core_location() is not None
    ours = {"Shared memory": core, "TCP": core}
    libraries = dict.fromkeys(("NCCL", "DDL", "CCL", "MPI", "Gloo"), False)
    return {
        "Frameworks": {adapter.framework: adapter.available for adapter in adapters()},
        "Controllers": {"MPI": False, "Gloo": core},
        "Tensor Operations": {**ours, **libraries},
    }


def describe(verbose: bool = False) -> str:
    """The table of ``horovodrun --check-build``: [X] works here, [ ] does not. ``verbose``: with the versions
    and places of frameworks, and with what is missing.
    """
    lines = [f"Horovod v{__version__}:"]
    notes = _notes() if verbose else {}
    absent = _ABSENT if verbose and core_location() is not None else {}
    for section, rows in facts().items():
        lines += ["", f"Available {section}:"]
        lines += [
            f"    [{'X' if works else ' '}] {name}{notes.get(name, '' if works else absent.get(name, ''))}"
            for name, works in rows.items()
        ]
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
    report["adapters"] = {
        adapter.framework: {
            "package": f"horovod.{adapter.package}",
            "version": adapter.version,
            "lacks": adapter.lacks,
        }
        for adapter in adapters()
    }
    return json.dumps(report, indent=2)


def _notes() -> dict[str, str]:
    return {
        adapter.framework: f" {adapter.version or ''} ({adapter.location})"
        if adapter.available
        else f" ({adapter.lacks})"
        for adapter in adapters()
    }
