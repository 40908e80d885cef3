"""Data-parallel training for deep learning frameworks.

Import the adapter of your framework, for example ``import horovod.torch as hvd``; this package itself imports
none. ``horovod.run`` calls a function on all ranks of a job that it starts.
"""

from typing import TYPE_CHECKING, Any

from horovod.bootstrap.variables import flag as _flag
from horovod.version import __api_version__, __version__

if TYPE_CHECKING:
    from horovod.runner.call.run import run

__all__ = ["__api_version__", "__version__", "run"]

if _flag("HOROVOD_SHOW_API_VERSION"):
    __version__ = __api_version__  # for programs that ask for just this one


def __getattr__(name: str) -> Any:
    """``run`` and ``runner`` are imported when they are asked for: a training script needs neither."""
    if name in ("run", "runner"):
        import importlib

        runner = importlib.import_module("horovod.runner")
        return runner.run if name == "run" else runner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
