"""What a test sees that looks at its own process from outside."""

import os
from collections.abc import Callable


def standard_error_of(function: Callable[[], object]) -> str:
    """What the process writes to its standard error meanwhile, the core's part too."""
    kept = os.dup(2)
    read, write = os.pipe()
    os.dup2(write, 2)
    try:
        function()
    finally:
        os.dup2(kept, 2)
        os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        return pipe.read()
