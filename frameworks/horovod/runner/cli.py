"""The command line of horovodrun: its own options, then the user's command, untouched."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from horovod.bootstrap.text import escaped

from . import hosts, options

USAGE_STATUS = 2

_DESCRIPTION = (
    "Starts N ranks of a command on this host, shows their output line by line behind [rank]<stream>:, and "
    "ends all of them when one fails. Its status is the status of the rank that failed first. The standard "
    "input of the ranks is /dev/null."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {escaped(message)} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE_STATUS)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments behind the program's name; ``command`` is the user's command as it was given.

    Wrong usage ends the program with status 2 and one line that says how to correct it.
    """
    parser = _Parser(
        prog="horovodrun",
        usage="horovodrun -np N [options] [--] command [argument ...]\n"
        "       horovodrun --merge-timelines OUT FILE [FILE ...]",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    options.add_general(parser)
    options.add_tunables(parser)
    options.add_compatible(parser)
    own, command = _split(parser, list(argv))
    arguments = parser.parse_args(own)
    arguments.command = command
    if arguments.merge_timelines is not None:
        if not command:
            parser.error("--merge-timelines: name the files to merge, too")
    elif not (arguments.version or arguments.check_build):
        if arguments.json:
            parser.error("--json goes with --check-build")
        _check(parser, arguments)
    return arguments


def _split(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """(own options, command). The command begins at the first word that is no option nor its value."""
    takes_value = {flag: action.nargs != 0 for action in parser._actions for flag in action.option_strings}
    position = 0
    while position < len(argv):
        word = argv[position]
        if word == "--":
            return argv[:position], argv[position + 1 :]
        if not word.startswith("-"):
            break
        position += 2 if takes_value.get(word) else 1
    return argv[:position], argv[position:]


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    count = arguments.num_proc
    if count is None:
        parser.error("-np is missing: say how many ranks to start, for example -np 2")
    if count < 1:
        parser.error(f"-np {count}: at least 1 rank is needed, for example -np 2")
    if arguments.start_timeout == 0:
        parser.error("--start-timeout 0: give at least 1 second")
    if not arguments.command:
        parser.error("the command is missing, for example: horovodrun -np 2 python train.py")
    if arguments.hosts is not None:
        _check_slots(parser, count, arguments.hosts)


def _check_slots(parser: argparse.ArgumentParser, count: int, text: str) -> None:
    try:
        slots = hosts.local_slots(text)
    except ValueError as error:
        parser.error(str(error))
    if count > slots:
        parser.error(f"-np {count} is more than the {slots} slots of -H {text}: raise one or lower the other")
