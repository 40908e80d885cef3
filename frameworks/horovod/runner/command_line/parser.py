"""The command line of horovodrun: its own options, then the user's command, untouched."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from horovod.bootstrap.text import escaped

from .. import hosts, placing
from . import compatible, options, origins, words

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

USAGE_STATUS = 2
_WIDTH = 80  # where there is no terminal
_PLACES = {"hosts", "hostfile"}

_USAGE = """horovodrun -np N [options] [--] command [argument ...]
       horovodrun --print-config [--json] [options]
       horovodrun --check-build [--verbose] [--json]
       horovodrun --merge-timelines OUT FILE [FILE ...]
       horovodrun history DIR [options]
       horovodrun top [PID ...] [--once | --json]
       horovodrun doctor [options]
       horovodrun bench [options]"""

_DESCRIPTION = """\
Starts N ranks of a command, on this host or on those of -H, and shows their
output, each line behind [rank]<stream>:. When a rank fails, horovodrun ends the
others, says why, and exits with the status of the rank that failed first. A
script (train.py) is run by the Python of horovodrun.

  horovodrun -np 4 python train.py               4 ranks on this host
  horovodrun -H node1:4,node2:4 python train.py  8 ranks on two hosts, by ssh
  horovodrun -np 4 --min-np 2 python train.py    goes on when ranks are lost"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Knows how wide the terminal is without the module that would be imported for that."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width() - 2)


def _width() -> int:
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(1).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH


class _Parser(argparse.ArgumentParser):
    where = ""  # what is being read, when it is not the command line

    def error(self, message: str) -> NoReturn:
        text = escaped(f"{self.where}{message}")
        print(f"{self.prog}: error: {text} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE_STATUS)

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        print(message, end="", file=file)  # the errors of which argparse keeps to itself


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments behind the program's name; ``command`` is the user's command as it was given.

    Wrong usage ends the program with status 2 and one line that says how to correct it.
    """
    parser = new_parser()
    own, command = _split(parser, list(argv))
    arguments = _read(parser, own)
    arguments.command = command
    if arguments.completion is not None:
        return arguments
    if arguments.merge_timelines is not None:
        if not command:
            parser.error("--merge-timelines: name the files to merge, too")
    elif not (arguments.version or arguments.check_build):
        remark = words.remark(command, arguments.stdin_rank is not None)
        if remark is not None:
            parser.error(remark)
        if not arguments.print_config or placing.says_where(arguments, os.environ):
            _place(parser, arguments)
        if not arguments.print_config:
            _check(parser, arguments)
    return arguments


def _read(parser: "_Parser", own: Sequence[str]) -> argparse.Namespace:
    """The options of the command line, and of the file that it names."""
    typed = origins.given(parser, own)
    sources = [(origins.COMMAND_LINE, typed)]
    path = typed.get("config_file")
    if isinstance(path, str):
        from_file = _from_file(parser, path)
        if typed.keys() & _PLACES:  # the file's may be the other of the two
            from_file = {name: value for name, value in from_file.items() if name not in _PLACES}
        sources.insert(0, (f"config file {path}", from_file))
    arguments = origins.combine(parser, sources)
    arguments.warnings = compatible.warnings(arguments)
    return arguments


def new_parser() -> "_Parser":
    """The parser of all options, known to this version or to Horovod 0.28."""
    parser = _Parser(
        prog="horovodrun", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False, formatter_class=_Help
    )
    options.add_to(parser)
    return parser


def _from_file(parser: "_Parser", path: str) -> dict[str, object]:
    """What a file says, for the command line to say otherwise."""
    from . import config_file

    try:
        words = config_file.read_options(path)
    except config_file.ConfigFileError as error:
        parser.error(str(error))
    parser.where = f"{path}: "
    found = origins.given(parser, words)
    parser.where = ""
    return found


def _split(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """(own options, command). The command begins at the first word that is no option nor its value."""
    counts = {flag: action.nargs for action in parser._actions for flag in action.option_strings}
    position = 0
    while position < len(argv):
        word = argv[position]
        if word == "--":
            return argv[:position], argv[position + 1 :]
        if not word.startswith("-"):
            break
        count = counts.get(word, 0)
        position += 1 + (count if isinstance(count, int) else 1)
    return argv[:position], argv[position:]


def _place(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Completes the options by how many ranks there are, where, and who starts them."""
    try:
        placing.place(arguments, os.environ)
    except hosts.HostsError as error:
        parser.error(str(error))
    _check_ranks(parser, arguments)


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuses what cannot be started."""
    if arguments.json and arguments.events is not None:
        parser.error("--events: --json writes the same to stdout; give one of them")
    if arguments.start_timeout == 0:
        parser.error("--start-timeout 0: give at least 1 second")
    if arguments.timeout == 0:
        parser.error("--timeout 0: give more than 0 seconds, or leave --timeout out")
    if not arguments.command:
        parser.error("the command is missing, for example: horovodrun -np 2 python train.py")


def _check_ranks(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    last = arguments.num_proc - 1
    if placing.is_elastic(arguments):  # it may grow
        last = sys.maxsize if arguments.max_np is None else arguments.max_np - 1
    if arguments.stdin_rank is not None and arguments.stdin_rank > last:
        parser.error(f"--stdin-rank {arguments.stdin_rank}: the last rank is {last}")
    if arguments.ranks is not None and arguments.ranks[-1] > last:
        parser.error(f"--ranks: there is no rank {arguments.ranks[-1]}, the last one is {last}")
