"""The command line of horovodrun: its own options, then the user's command, untouched."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from horovod.bootstrap.text import escaped

from . import compatible, hosts, launchers, limits, options, origins, tunables, values

USAGE_STATUS = 2
_PLACES = {"hosts", "hostfile"}

_USAGE = """horovodrun -np N [options] [--] command [argument ...]
       horovodrun --print-config [--json] [options]
       horovodrun --check-build [--verbose] [--json]
       horovodrun --merge-timelines OUT FILE [FILE ...]"""

_DESCRIPTION = (
    "Starts N ranks of a command on this host and shows their output, each line behind [rank]<stream>:. A "
    "script (train.py) is run by the Python of horovodrun. When a rank fails, horovodrun ends the others, "
    "says why, and exits with the status of the rank that failed first."
)


class _Parser(argparse.ArgumentParser):
    where = ""  # what is being read, when it is not the command line

    def error(self, message: str) -> NoReturn:
        text = escaped(f"{self.where}{message}")
        print(f"{self.prog}: error: {text} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE_STATUS)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments behind the program's name; ``command`` is the user's command as it was given.

    Wrong usage ends the program with status 2 and one line that says how to correct it.
    """
    parser = new_parser()
    own, command = _split(parser, list(argv))
    arguments = _read(parser, own)
    arguments.command = command
    if arguments.merge_timelines is not None:
        if not command:
            parser.error("--merge-timelines: name the files to merge, too")
    elif not (arguments.version or arguments.check_build):
        if not arguments.print_config or _says_where(arguments):
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
    return origins.combine(parser, sources)


def new_parser() -> "_Parser":
    """The parser of all options, known to this version or to Horovod 0.28."""
    parser = _Parser(prog="horovodrun", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False)
    options.add_general(parser)
    options.add_ssh(parser)
    options.add_output(parser)
    tunables.add_tunables(parser)
    compatible.add_compatible(parser)
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


def _says_where(arguments: argparse.Namespace) -> bool:
    """Whether there is anything that says how many ranks to start."""
    names = ("num_proc", "nnodes", "nproc_per_node", "hosts", "hostfile")
    return any(getattr(arguments, name) is not None for name in names)


def _place(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Completes ``num_proc``, ``host_list`` and ``launcher``, and refuses what cannot be."""
    try:
        arguments.host_list, arguments.num_proc = _hosts(parser, arguments)
        count = arguments.num_proc
        if count < 1:
            parser.error(f"-np {count}: at least 1 rank is needed, for example -np 2")
        hosts.check_slots(arguments.host_list, count)
        arguments.launcher = launchers.choose(arguments.host_list)
    except hosts.HostsError as error:
        parser.error(str(error))
    _check_ranks(parser, arguments)


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuses what cannot be started."""
    if arguments.json:
        parser.error("--json goes with --check-build or --print-config")
    if arguments.start_timeout == 0:
        parser.error("--start-timeout 0: give at least 1 second")
    if not arguments.command:
        parser.error("the command is missing, for example: horovodrun -np 2 python train.py")


def _check_ranks(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    last = arguments.num_proc - 1
    if arguments.stdin_rank is not None and arguments.stdin_rank > last:
        parser.error(f"--stdin-rank {arguments.stdin_rank}: the last rank is {last}")
    if arguments.ranks is not None and arguments.ranks[-1] > last:
        parser.error(f"--ranks: there is no rank {arguments.ranks[-1]}, the last one is {last}")


def _hosts(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> tuple[list[hosts.Host], int]:
    """The hosts that the job may use, and how many ranks it has."""
    asked = arguments.num_proc
    nnodes, per_node = arguments.nnodes, arguments.nproc_per_node
    if asked is None and per_node is None and nnodes is None:
        parser.error("-np is missing: say how many ranks to start, for example -np 2, or -np auto")
    if arguments.hosts is not None and arguments.hostfile is not None:
        parser.error("-H and --hostfile both say where to start: give one of them")
    np = None if asked == values.AUTO else asked
    if arguments.hosts is not None:
        found = hosts.parse(arguments.hosts)
    elif arguments.hostfile is not None:
        found = hosts.read_hostfile(arguments.hostfile)
    else:
        found = [hosts.Host("localhost", per_node or np or limits.usable_cores())]
    return hosts.narrow(found, np, nnodes, per_node)
