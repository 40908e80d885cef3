"""Where the value of each option comes from: the command line, a file, the environment, or nowhere."""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from horovod.bootstrap.text import escaped

from .option import Option
from .options import FAN_OUT, OPTIONS, VERBS

COMMAND_LINE, DEFAULT, DERIVED = "command line", "default", "number of slots"

_ABSENT = object()
_SHOWN = "HOROVOD_"  # other variables of -x may hold passwords


@dataclass(frozen=True)
class Row:
    """The value of an option; None: not set. ``variable`` carries it to the ranks, if one does."""

    option: str
    variable: str | None
    value: object
    origin: str


def given(parser: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, object]:
    """What ``words`` say, by attribute, without defaults."""
    for word in words:
        if _is_no_flag(parser, word):
            _refuse(parser, word)
    blank = argparse.Namespace(**{action.dest: _ABSENT for action in parser._actions})
    known, unknown = parser.parse_known_args(words, blank)
    if unknown:
        _refuse(parser, unknown[0])
    found = vars(known)
    return {name: value for name, value in found.items() if value is not _ABSENT}


def _is_no_flag(parser: argparse.ArgumentParser, word: str) -> bool:
    """Of a word behind one dash: argparse takes -hosts for the switch -h and the rest of the word."""
    if len(word) < 3 or word[0] != "-" or not word[1].isalpha() or " " in word:
        return False
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    letter = flags.get(word[:2])  # a value may follow at once, as in -p22
    return word.partition("=")[0] not in flags and (letter is None or letter.nargs == 0)


def _refuse(parser: argparse.ArgumentParser, word: str) -> NoReturn:
    flag = word.partition("=")[0]
    parser.error(f"there is no option {flag}{_nearest(parser, flag)}")


def _nearest(parser: argparse.ArgumentParser, flag: str) -> str:
    """The option of --help that was meant, as far as one can tell."""
    import difflib  # only for those who need it: the help is to be quick

    shown = [action.option_strings for action in parser._actions if action.help != argparse.SUPPRESS]
    flags = [each for strings in shown for each in strings]
    name = flag.lstrip("-")
    same = [each for each in flags if each.lstrip("-") in (name, f"{name}s")]
    begun = [each for each in flags if len(flag) > 3 and each.startswith(flag)]
    near = same or begun or difflib.get_close_matches(flag, flags, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def combine(
    parser: argparse.ArgumentParser, sources: Sequence[tuple[str, Mapping[str, object]]]
) -> argparse.Namespace:
    """The values of ``sources``, pairs of origin and what is given there; a later one comes first.

    ``origins`` of the result says for each attribute that was given where, and for each variable of -x.
    """
    arguments = parser.parse_args([])
    arguments.origins, arguments.env = {}, {}
    for origin, values in sources:
        exported = dict(values).pop("env", {})
        assert isinstance(exported, dict)
        vars(arguments).update(values, env=arguments.env | exported)
        arguments.origins.update(dict.fromkeys([*values, *map(_export, exported)], origin))
    return arguments


def rows(
    arguments: argparse.Namespace, environ: Mapping[str, str], defaults: Mapping[str, str]
) -> Iterator[Row]:
    """One for each option that --help shows, each that was given without effect, and each variable of -x.

    Args:
        arguments: the values, of ``combine``.
        environ: the environment of the caller, which ranks inherit.
        defaults: of variables, by name.
    """
    seen = {*VERBS, "env"}
    for option in OPTIONS:
        dest = option.attribute
        if dest not in seen and option.help is not None:
            seen.add(dest)
            value, origin = _value(dest, option.variable, arguments, environ, defaults)
            yield Row(_name(option), option.variable, value, origin)
        elif option.no_effect and dest in arguments.origins:
            yield Row(option.flags, None, f"no effect: {option.no_effect}", arguments.origins[dest])
    for name, text in sorted(arguments.env.items()):
        is_shown = name.rpartition(":")[2].startswith(_SHOWN)
        yield Row("--env", name, text if is_shown else None, arguments.origins[_export(name)])


def _value(
    dest: str,
    variable: str | None,
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    defaults: Mapping[str, str],
) -> tuple[object, str]:
    if variable is not None and variable in arguments.env:
        return arguments.env[variable], arguments.origins[_export(variable)]
    from ..ending import GRACE_SECONDS  # only here: the help is to be quick

    value = getattr(arguments, dest)
    allocation = getattr(arguments, "allocation", None)
    if dest == "hosts" and allocation is not None:
        return ",".join(map(str, allocation.hosts)), arguments.origins["allocation"]
    if dest in arguments.origins:
        return value, arguments.origins[dest]
    if variable is not None and variable in environ:
        return environ[variable], f"environment variable {variable}"
    own = {"grace": GRACE_SECONDS, "ssh_fan_out": FAN_OUT}
    if dest in own:
        return own[dest], DEFAULT
    if variable is not None:
        return defaults.get(variable) or None, DEFAULT
    return value, DERIVED if dest == "num_proc" and value is not None else DEFAULT


def describe(arguments: argparse.Namespace) -> str:
    """The text of ``horovodrun --print-config``, with ``--json`` for programs."""
    from horovod.bootstrap import variables

    found = list(rows(arguments, os.environ, variables.defaults()))
    if arguments.json:
        return as_json(found)
    if arguments.verbose:
        return table(found)
    shown = [row for row in found if row.origin != DEFAULT]
    rest = f"{len(found) - len(shown)} more have their defaults: --verbose shows them"
    return f"{table(shown)}\n{rest}" if shown else rest


def _name(option: Option) -> str:
    """The option; for a choice among several, what they choose."""
    is_choice = isinstance(option.takes, str) and option.variable is None
    return option.attribute if is_choice else max(option.flags.split(), key=len)


def _export(name: str) -> str:
    return f"-x {name}"


def table(found: Sequence[Row]) -> str:
    """The rows for people, in three columns."""
    cells = [("option", "value", "from"), *((row.option, _shown(row), row.origin) for row in found)]
    widths = [max(len(line[column]) for line in cells) for column in range(2)]
    return "\n".join(
        f"{option:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for option, value, origin in cells
    )


def as_json(found: Sequence[Row]) -> str:
    """The rows for programs: a list of objects."""
    import json  # only here: the help is to be quick

    return json.dumps([asdict(row) for row in found], indent=2)


def _shown(row: Row) -> str:
    if row.option == "--env" and row.value is None:
        return f"{row.variable}=..."
    if row.value is None:
        return "-"
    text = str(row.value).lower() if isinstance(row.value, bool) else str(row.value)
    if isinstance(row.value, list):
        text = ",".join(map(str, row.value))
    return escaped(text if row.variable is None else f"{row.variable}={text}")
