"""The working directory, which somebody may have removed while a shell or a program is in it."""

import os


def working_directory() -> str:
    """Raises FileNotFoundError, whose text says what to do, where it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            "the working directory has been removed: change to one that exists, as by cd ~"
        ) from None


def absolute(path: str) -> str:
    """A path that holds in any folder. Raises FileNotFoundError as ``working_directory`` does."""
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(working_directory(), path))
