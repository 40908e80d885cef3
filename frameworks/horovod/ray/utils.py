"""Names that others import: Ray Train's own trainer of its first version is one of them."""

from collections.abc import Sequence
from typing import Any

from .settings import nics_to_env_var

__all__ = ["detect_nics", "nics_to_env_var"]


def detect_nics(
    settings: Any, all_host_names: Sequence[str] | None = None, node_workers: Sequence[Any] | None = None
) -> set[str]:
    """The network interfaces that ``settings.nics`` names. Without them there is nothing to find out: ranks
    find their ways to each other when they start.
    """
    return set(getattr(settings, "nics", None) or ())
