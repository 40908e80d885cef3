"""The arguments of horovod.run as options of horovodrun, and back where horovodrun refuses one. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from ..command_line.options import OPTIONS

BY_ARGUMENT = {option.argument: option for option in OPTIONS if option.argument}
_EITHER = (("hosts", "hostfile"), ("use_gloo", "use_mpi"))
_LAUNCHERS_WORDS = re.compile(r"^horovodrun: error: | \(see horovodrun --help\)$")


def words(given: Mapping[str, Any]) -> list[str]:
    """The options of horovodrun for arguments by name; None and False ask for nothing.

    Raises ValueError for two that exclude each other.
    """
    for one, other in _EITHER:
        if given.get(one) and given.get(other):
            raise ValueError(f"horovod.run: {one} and {other} exclude each other: give one of them")
    asked = {name: value for name, value in given.items() if value is not None}
    return [word for name, value in asked.items() for word in BY_ARGUMENT[name].words(value)]


def refusal(text: str) -> str:
    """What horovodrun says against its options, for somebody who gave arguments."""
    return f"horovod.run: {by_arguments(_LAUNCHERS_WORDS.sub('', text.strip()))}"


def by_arguments(message: str) -> str:
    """A text that names options, with the arguments in their place."""
    for name, option in BY_ARGUMENT.items():
        for flag in option.flags.split():
            word = rf"(?<![\w-]){re.escape(flag)}(?![\w-])"
            message = re.sub(rf"{word} (?=\d)", f"{name}=", message)
            message = re.sub(word, name, message)
    return message
