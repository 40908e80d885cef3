"""Options of Horovod 0.28 that this version does not need or does not have.

What such an option asks for is either so anyway, or it is not, and a warning says why. None is unknown and
none ends the job, so that a command line and a file of Horovod 0.28 start, and are never misread.
"""

import argparse

from .option import Option

_NO_NCCL = "this version does not steer NCCL, which chooses its streams and rings itself"
_CHOOSES = "the library chooses what is fastest between hosts"


def _so(flag: str, why: str, key: str = "", is_off: bool = False, argument: str = "") -> Option:
    return Option(flag, None, key=key, is_off=is_off, argument=argument, no_effect=why)


COMPATIBLE = (
    _so("--disable-cache", "the launcher remembers nothing between two jobs", argument="disable_cache"),
    _so("--tcp", "InfiniBand is not used", "library_options.tcp"),
    _so("--hierarchical-allreduce", _CHOOSES, "params.hierarchical_allreduce"),
    _so("--no-hierarchical-allreduce", _CHOOSES, "params.hierarchical_allreduce", is_off=True),
    _so("--hierarchical-allgather", _CHOOSES, "params.hierarchical_allgather"),
    _so("--no-hierarchical-allgather", _CHOOSES, "params.hierarchical_allgather", is_off=True),
    _so("--no-torus-allreduce", "there is none", "params.torus_allreduce", is_off=True),
    Option("--torus-allreduce", None, key="params.torus_allreduce", no_effect=_NO_NCCL, is_missed=True),
    Option(
        "--num-nccl-streams",
        None,
        ("N", str),
        key="library_options.num_nccl_streams",
        no_effect=_NO_NCCL,
        is_missed=True,
    ),
)


def warnings(arguments: argparse.Namespace) -> list[str]:
    """A line for each option that asks for what will not be."""
    given = [option for option in COMPATIBLE if option.is_missed and getattr(arguments, option.attribute)]
    return [f"{option.flags} has no effect: {option.no_effect}" for option in given]
