"""The job that ``horovodrun doctor`` or ``horovodrun bench`` is, on the hosts that its options name."""

import argparse
import importlib.util
import re
import sys
from collections.abc import Sequence

from horovod.bootstrap.paths import absolute

OPERATIONS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
_COUNTS = ("-np", "-n", "--num-proc", "--nproc-per-node", "--nnodes")
_ABOUT = {
    "doctor": "Look at hosts, and at the links between them, and say what to do.",
    "bench": "Measure collectives of floats by size, on the ranks of a job.",
}
PROBES = tuple(_ABOUT)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1000, 64K, 16M or 1G")
    return int(match[1]) * _UNITS[match[2]]


_NUMBERS = (
    ("--min-bytes", _bytes, 1 << 10, "the least size (1K)"),
    ("--max-bytes", _bytes, 64 << 20, "the largest (64M)"),
    ("--factor", int, 4, "from one size to the next (4)"),
)


def parser(probe: str) -> argparse.ArgumentParser:
    """Of the options that are the probe's own. It leaves help to ``words``, as -h may begin others."""
    found = argparse.ArgumentParser(
        prog=f"horovodrun {probe}",
        usage=f"horovodrun {probe} [options of this table] [options of horovodrun]",
        description=_ABOUT[probe],
        allow_abbrev=False,
        add_help=False,
    )
    found.add_argument("--json", action="store_true", help="print a JSON object in each line")
    if probe == "bench":
        found.add_argument(
            "--operation", choices=OPERATIONS, metavar="NAME", help=f"one of {', '.join(OPERATIONS)}"
        )
        found.add_argument(
            "--min-bytes", type=_bytes, default=1 << 10, metavar="N", help="the least size (1K)"
        )
        found.add_argument(
            "--max-bytes", type=_bytes, default=64 << 20, metavar="N", help="the largest (64M)"
        )
        found.add_argument("--factor", type=int, default=4, metavar="N", help="from one size to the next (4)")
        found.add_argument(
            "--plot", type=absolute, metavar="FILE", help="draw the rates by size, beside what limits them"
        )
    return found


def parse(probe: str, options: Sequence[str], known: argparse.Namespace | None = None) -> argparse.Namespace:
    """The options of the probe. Ends this process for what is none."""
    own = parser(probe)
    found = own.parse_args(options, known)
    if probe == "bench":
        if found.factor < 2 or found.min_bytes < 1 or found.max_bytes < found.min_bytes:
            own.error("--factor is at least 2, --min-bytes at least 1, and --max-bytes not below it")
        if found.plot is not None and importlib.util.find_spec("matplotlib") is None:
            own.error("--plot needs matplotlib: pip install matplotlib")
    return found


def words(probe: str, options: Sequence[str]) -> list[str]:
    """The command line of that job: one rank on each host for the doctor, and as many as there are cores or
    slots for the bench, unless the user says otherwise. What follows ``--`` is for the program.
    """
    end = list(options).index("--") if "--" in options else len(options)
    if {"-h", "--help"} & set(options):
        parser(probe).print_help()
        sys.exit(0)
    known, given = parser(probe).parse_known_args(options[:end])
    own = parse(probe, options[end + 1 :], known)
    is_counted = any(option.partition("=")[0] in _COUNTS for option in given)
    usual = ["--nproc-per-node", "1"] if probe == "doctor" else ["-np", "auto"]
    quiet = ["--log-level", "error", "--ranks", "0"]
    program = [sys.executable, "-m", f"horovod.runner.probes.{probe}", *_as_words(own)]
    return [*quiet, *([] if is_counted else usual), *given, "--", *program]


def _as_words(found: argparse.Namespace) -> list[str]:
    said = {f"--{name.replace('_', '-')}": value for name, value in vars(found).items()}
    flags = [name for name, value in said.items() if value is True]
    return [*flags, *(f"{name}={value}" for name, value in said.items() if value not in (None, True, False))]
