"""The settings of executors, and what is common to them."""

from dataclasses import dataclass
from typing import Any

from horovod.runner.common.util.timeout import Timeout
from horovod.runner.engines import nics_to_env_var

__all__ = ["MiniSettings", "check_gpus", "nics_to_env_var", "number", "start_seconds"]

PLACEMENT_SECONDS, START_SECONDS = 100, 30


@dataclass
class MiniSettings:
    """What an executor has to know; an object of another class with these attributes will do. The ones of ssh
    are accepted: nothing is reached by it.
    """

    nics: Any = None
    verbose: int = 1
    key: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = PLACEMENT_SECONDS

    @property
    def start_timeout(self) -> Timeout:
        """``timeout_s`` as a limit that begins now."""
        return Timeout(self.timeout_s, "Timed out waiting for {activity}.")


def start_seconds(settings: Any) -> float:
    """How long ranks wait for each other at their start."""
    limit = getattr(settings, "start_timeout", None)
    return number(settings, "timeout_s", number(limit, "timeout", START_SECONDS))


def number(settings: Any, name: str, default: float) -> float:
    """Of settings that may have another class, or be none."""
    found = getattr(settings, name, None)
    return default if found is None else float(found)


def check_gpus(use_gpu: bool, count: int | None) -> None:
    """Raises ValueError for GPUs that nobody uses."""
    if count is not None and not use_gpu:
        raise ValueError(f"gpus_per_worker={count} without use_gpu=True: no GPUs would be used")
    if count is not None and count < 1:
        raise ValueError(f"gpus_per_worker={count}: a rank that uses GPUs has at least 1")
