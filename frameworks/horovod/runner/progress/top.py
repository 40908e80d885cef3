"""``horovodrun top [PID ...]``: the jobs of this user that run on this host, as their launchers see them."""

import argparse
import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import serving, table

_SECONDS = 2.0  # for a launcher to answer
_PERIOD_SECONDS = 1.0
_HOME_AND_CLEAR, _CLEAR_LINE, _CLEAR_REST = "\x1b[H\x1b[2J", "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"


def run(argv: Sequence[str]) -> int:
    """Shows jobs until they have ended, or once where stdout is no terminal. Returns the status."""
    arguments = _parser().parse_args(argv)
    is_once = arguments.once or arguments.json or not sys.stdout.isatty()
    with contextlib.suppress(KeyboardInterrupt):
        try:
            folder = serving.folder()
        except OSError as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return 1
        seen = _snapshots(folder, arguments.pid)
        if not seen:
            print(f"horovodrun: {_none(arguments.pid)}", file=sys.stderr)
            return 1
        if is_once:
            return _show_once(arguments, seen)
        print(_HOME_AND_CLEAR, end="")
        while seen:
            _draw(seen)
            time.sleep(_PERIOD_SECONDS)
            seen = _snapshots(folder, arguments.pid)
        print("the job has ended")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun top", description="Show your jobs that run on this host.", allow_abbrev=False
    )
    parser.add_argument("pid", nargs="*", type=int, help="of a horovodrun; without one, all of yours")
    parser.add_argument("--once", action="store_true", help="show them once, and end")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each job, and end")
    return parser


def _none(pids: Sequence[int]) -> str:
    named = f" with the process {', '.join(map(str, pids))}" if pids else ""
    return f"no job of yours{named} runs on this host (or in this container)"


def _snapshots(folder: str, pids: Sequence[int]) -> list[dict[str, Any]]:
    names = sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    found = (_ask(os.path.join(folder, str(pid)), pid) for pid in names if not pids or pid in pids)
    return [snapshot for snapshot in found if snapshot is not None]


def _ask(path: str, pid: int) -> dict[str, Any] | None:
    """What a launcher says; None: it has ended. Of one that is stopped or too busy, only its pid."""
    data = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(path)
            while more := connection.recv(1 << 16):
                data += more
        found: dict[str, Any] = json.loads(data)
        return found
    except FileNotFoundError:
        return None
    except ConnectionRefusedError:  # of a launcher that was killed
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    except (OSError, ValueError):
        return {"pid": pid}


def _show_once(arguments: argparse.Namespace, seen: Sequence[dict[str, Any]]) -> int:
    """Returns the status: whether any job has answered."""
    answered = [snapshot for snapshot in seen if "ranks" in snapshot]
    width = shutil.get_terminal_size().columns
    if arguments.json:
        for snapshot in answered:
            print(json.dumps(snapshot))
        for snapshot in seen:
            if snapshot not in answered:
                print(f"horovodrun: {table.silent(snapshot)}", file=sys.stderr)
    else:
        print("\n\n".join("\n".join(table.lines(snapshot, width)) for snapshot in seen))
    return 0 if answered else 1


def _draw(seen: Sequence[dict[str, Any]]) -> None:
    """Over what was drawn before, without a flicker."""
    width, height = shutil.get_terminal_size()
    room = max(3, (height - 1) // len(seen) - 1)
    lines = [line for each in seen for line in (*table.lines(each, width, room), "")]
    text = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines[: height - 1])
    print(f"{_HOME}{text}{_CLEAR_REST}", end="", flush=True)
