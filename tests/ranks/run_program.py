"""A program as ranks run it that need not import its framework again: see ``rank_server.runner``."""

import contextlib
import io
import runpy
import sys
from pathlib import Path


def ranks_program(path: str, arguments: list[str]) -> str:
    """What the program prints on this rank; its status has to be 0."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            assert not end.code, end.code
    return output.getvalue()
