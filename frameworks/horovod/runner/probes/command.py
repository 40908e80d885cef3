"""The job that ``horovodrun doctor`` or ``horovodrun bench`` is, on the hosts that its options name."""

import sys
from collections.abc import Sequence

PROBES = ("doctor", "bench")
_COUNTS = ("-np", "-n", "--num-proc", "--nproc-per-node", "--nnodes")


def words(probe: str, options: Sequence[str]) -> list[str]:
    """The command line of that job: one rank on each host for the doctor, and as many as there are cores or
    slots for the bench, unless the user says otherwise. What follows ``--`` is for the program.
    """
    end = list(options).index("--") if "--" in options else len(options)
    given, rest = list(options[:end]), list(options[end + 1 :])
    is_counted = any(option.partition("=")[0] in _COUNTS for option in given)
    usual = ["--nproc-per-node", "1"] if probe == "doctor" else ["-np", "auto"]
    quiet = ["--log-level", "error", "--ranks", "0"]
    program = [sys.executable, "-m", f"horovod.runner.probes.{probe}", *rest]
    return [*quiet, *([] if is_counted else usual), *given, "--", *program]
