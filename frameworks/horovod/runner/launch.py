"""Entry point of the console script ``horovodrun``. What a launch needs is imported for a launch only."""

import argparse
import sys
from collections.abc import Sequence

from . import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``argv`` (default: the arguments of this program)."""
    return cli.parse(sys.argv[1:] if argv is None else argv)


def check_build(verbose: bool = False) -> None:
    """Prints what this installation can do; ``verbose`` adds where the parts lie."""
    from .build_report import describe

    print(describe(verbose))


def run_commandline() -> None:
    """Runs horovodrun and exits with its status."""
    arguments = parse_args()
    if arguments.version:
        from horovod.version import __version__

        print(__version__)
    elif arguments.check_build:
        from . import build_report

        print(build_report.as_json() if arguments.json else build_report.describe(arguments.verbose))
    elif arguments.merge_timelines is not None:
        from . import timeline

        sys.exit(timeline.merge_command(arguments.merge_timelines, arguments.command))
    else:
        from .launchers import local

        sys.exit(local.launch(arguments))


if __name__ == "__main__":
    run_commandline()
