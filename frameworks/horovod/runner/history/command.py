"""``horovodrun history DIR``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from horovod.bootstrap.text import escaped
from horovod.elastic.checkpoint import history, layout

from ..command_line import values
from . import picture, text

_USAGE_STATUS = 2
_LAST = 20


class UnusableError(Exception):
    """There is no history, or no way to show it."""


def run(argv: Sequence[str]) -> int:
    """Shows a history, and returns the status of the program."""
    arguments = _parser().parse_args(argv)
    try:
        _show(arguments)
    except UnusableError as error:
        print(f"horovodrun history: {escaped(str(error))}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    description = "Shows what an elastic training has recorded with state.record(...) beside its checkpoints."
    parser = argparse.ArgumentParser(prog="horovodrun history", description=description, allow_abbrev=False)
    add = parser.add_argument
    add("directory", metavar="DIR", help="the folder of the checkpoints, or a file history.jsonl")
    last = f"rows of the table, from the end; 0: all ({_LAST})"
    add("--last", type=values.integer, metavar="N", default=_LAST, help=last)
    metric = "plot this one (may be repeated); without it, all numbers but steps and epochs"
    add("--metric", action="append", metavar="NAME", help=metric)
    add("--json", action="store_true", help="print the lines as they are on disk, a JSON object each")
    add("--output", metavar="FILE", help="draw the plots into FILE, a .png, .pdf or .svg; needs matplotlib")
    return parser


def _show(arguments: argparse.Namespace) -> None:
    lines = _read(arguments.directory)
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
        return
    if not lines:
        print("nothing is recorded: call state.record(loss=...) in the training, with --checkpoint-dir")
        return
    plots = _plots(lines, arguments.metric)
    if arguments.output is not None:
        _draw(plots, arguments.output)
        return
    print(text.table(lines, arguments.last))
    width = shutil.get_terminal_size().columns
    for plot in plots:
        print()
        print(text.drawn(plot, width))


def _read(path: str) -> list[dict[str, Any]]:
    name = os.path.join(path, layout.HISTORY) if os.path.isdir(path) else path
    try:
        with open(name, "rb") as file:
            return history.decode(file.read())
    except FileNotFoundError:
        if os.path.isdir(path):
            return []
        raise UnusableError(f"{path} is not there") from None
    except OSError as error:
        raise UnusableError(str(error)) from None


def _plots(lines: list[dict[str, Any]], names: Sequence[str] | None) -> list[text.Plot]:
    plots = text.plots_of(lines, names)
    missing = sorted(set(names or ()) - {plot.name for plot in plots})
    if missing:
        raise UnusableError(f"there are no numbers named {', '.join(missing)}")
    return plots


def _draw(plots: list[text.Plot], path: str) -> None:
    if not plots:
        raise UnusableError("there are no numbers to draw")
    try:
        picture.draw(plots, path)
    except ImportError:
        raise UnusableError("--output needs matplotlib: pip install matplotlib") from None
    except (OSError, ValueError) as error:  # ValueError: a kind of file that matplotlib does not know
        raise UnusableError(str(error)) from None
