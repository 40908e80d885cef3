"""Options of Horovod 0.28 that this version does not need or does not have.

What such an option asks for is either so anyway, and it is accepted, or it is not, and the option is refused
with the reason. None is unknown, so that a command line of Horovod 0.28 is never misread.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_NO_NCCL = "this version does not steer NCCL, which chooses its streams and rings itself"
_TWO_TIMEOUTS = (
    "use --start-timeout for the start, --hang-timeout for operations, and HOROVOD_GLOO_TIMEOUT_SECONDS "
    "for the Gloo library"
)


@dataclass(frozen=True)
class _Option:
    """``values``: how many follow. ``so``: the reason why it is accepted. Else it is refused: ``refusal``."""

    flags: tuple[str, ...]
    values: int = 0
    so: str = ""
    refusal: str = ""

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
    _Option(("--torus-allreduce",), refusal=_NO_NCCL),
    _Option(("--num-nccl-streams",), 1, refusal=_NO_NCCL),
    _Option(("--gloo-timeout-seconds",), 1, refusal=_TWO_TIMEOUTS),
)


class _Refuse(argparse.Action):
    """Ends the program with the reason."""

    def __init__(self, refusal: str, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._refusal = refusal

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string}: {self._refusal}; leave {option_string} out")


def without_effect() -> dict[str, str]:
    """The options that are accepted, by attribute, and why they change nothing."""
    return {option.dest: option.so for option in _OPTIONS if option.so}


def add_compatible(parser: argparse.ArgumentParser) -> None:
    """Adds them all; --help does not show them."""
    for option in _OPTIONS:
        given: dict[str, object] = {"dest": option.dest, "default": None, "help": argparse.SUPPRESS}
        if option.refusal:
            given |= {"action": _Refuse, "refusal": option.refusal}
            given["nargs"] = option.values
        elif option.values:
            given["nargs"] = option.values
        else:
            given["action"] = "store_true"
        parser.add_argument(*option.flags, **given)  # type: ignore[arg-type]
