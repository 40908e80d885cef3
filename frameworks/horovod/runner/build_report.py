"""What this installation can do, found out without importing a framework."""

import importlib.util

from horovod.version import __version__

_FRAMEWORKS = (("TensorFlow", "tensorflow"), ("PyTorch", "torch"), ("Keras", "keras"), ("MXNet", "mxnet"))


def describe(verbose: bool = False) -> str:
    """The table of ``horovodrun --check-build``: [X] works here, [ ] does not."""
    core = _location("horovod._core")
    lines = [f"Horovod v{__version__}:", "", "Available Frameworks:"]
    for name, module in _FRAMEWORKS:
        framework, adapter = _location(module), _location(f"horovod.{module}")
        lines.append(_row(bool(framework and adapter and core), name, framework if verbose else None))
    lines += ["", "Available Launchers:", _row(True, "local"), "", "Available Data Planes:"]
    lines += [_row(bool(core), name, core if verbose else None) for name in ("Shared memory", "TCP")]
    if not core:
        lines += ["", "The compiled core is missing: install the package with pip install ."]
    return "\n".join(lines)


def _location(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None


def _row(works: bool, name: str, location: str | None = None) -> str:
    return f"    [{'X' if works else ' '}] {name}" + (f" ({location})" if location else "")
