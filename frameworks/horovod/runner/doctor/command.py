"""The job that ``horovodrun doctor`` is: one rank on each of the hosts that the options name."""

import sys
from collections.abc import Sequence

_COUNTS = ("-np", "-n", "--num-proc", "--nproc-per-node", "--nnodes")


def words(options: Sequence[str]) -> list[str]:
    """The command line of that job."""
    is_counted = any(option.partition("=")[0] in _COUNTS for option in options)
    own = [] if is_counted else ["--nproc-per-node", "1"]
    return [*options, *own, "--ranks", "0", "--", sys.executable, "-m", "horovod.runner.doctor.rank"]
