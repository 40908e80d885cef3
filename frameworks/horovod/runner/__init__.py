"""The launcher: starts the ranks of a job, shows their output, and ends what it has started."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .call.run import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    """``run`` is imported when it is asked for: horovodrun and the ranks need none of it."""
    if name == "run":
        from .call.run import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
