"""Options of Horovod 0.28 that this version does not need or does not have.

What such an option asks for is either so anyway, or it is not, and a warning says why. None is unknown and
none ends the job, so that a command line and a file of Horovod 0.28 start, and are never misread.
"""

import argparse
from dataclasses import dataclass

_NO_NCCL = "this version does not steer NCCL, which chooses its streams and rings itself"


@dataclass(frozen=True)
class _Option:
    """``values``: how many follow. It has no effect: what it asks for is ``so`` anyway, or it is ``missing``,
    for the reason that is given.
    """

    flags: tuple[str, ...]
    values: int = 0
    so: str = ""
    missing: str = ""

    @property
    def dest(self) -> str:
        """The attribute that tells whether it was given."""
        return self.flags[0].lstrip("-").replace("-", "_")


_OPTIONS = (
    _Option(("--disable-cache",), so="the launcher remembers nothing between two jobs"),
    _Option(("--tcp",), so="InfiniBand is not used"),
    _Option(("--hierarchical-allreduce",), so="the library chooses what is fastest between hosts"),
    _Option(("--no-hierarchical-allreduce",), so="the library chooses what is fastest between hosts"),
    _Option(("--hierarchical-allgather",), so="the library chooses what is fastest between hosts"),
    _Option(("--no-hierarchical-allgather",), so="the library chooses what is fastest between hosts"),
    _Option(("--no-torus-allreduce",), so="there is none"),
    _Option(("--torus-allreduce",), missing=_NO_NCCL),
    _Option(("--num-nccl-streams",), 1, missing=_NO_NCCL),
)


def without_effect() -> dict[str, str]:
    """The options, by attribute, and why they change nothing."""
    return {option.dest: option.so or option.missing for option in _OPTIONS}


def warnings(arguments: argparse.Namespace) -> list[str]:
    """A line for each option that asks for what will not be."""
    given = [option for option in _OPTIONS if option.missing and getattr(arguments, option.dest)]
    return [f"{option.flags[0]} has no effect: {option.missing}" for option in given]


def add_compatible(parser: argparse.ArgumentParser) -> None:
    """Adds them all; --help does not show them."""
    for option in _OPTIONS:
        given: dict[str, object] = {"dest": option.dest, "default": None, "help": argparse.SUPPRESS}
        if option.values:
            given["nargs"] = option.values
        else:
            given["action"] = "store_true"
        parser.add_argument(*option.flags, **given)  # type: ignore[arg-type]
