"""One option of horovodrun: what it is called where, what it takes, and what it is for."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .exports import Export

Value = tuple[str, Callable[[str], object]]
"""How a value is written in --help, and how it is read."""


@dataclass(frozen=True)
class Option:
    """A row of the table that the command line, files, horovod.run and --print-config are made of.

    Args:
        flags: what one types, with blanks between.
        help: for people; None: --help does not show it.
        takes: a value; or a constant, for a switch.
        variable: the variable of the ranks that carries it.
        dest: the attribute, which options may share; by default the variable, or else the first long flag.
        key: what it is called in a file, with its section, with blanks between; by default each long flag is
            a key.
        is_off: it is what the key stands for when it is false.
        argument: what it is called in horovod.run.
        count: how many values follow.
        adds: each further use adds to a list.
        no_effect: it is one of Horovod 0.28, and this is why it changes nothing; it is ``missed`` where
            what it asks for is not so anyway.
    """

    flags: str
    help: str | None
    takes: Value | str | bool = True
    variable: str | None = None
    dest: str = ""
    key: str = ""
    is_off: bool = False
    argument: str = ""
    count: int = 1
    adds: bool = False
    no_effect: str = ""
    is_missed: bool = False

    @property
    def attribute(self) -> str:
        """Where its value is, when a command line has been read."""
        return self.dest or self.variable or _attribute(self.long_flags[0])

    @property
    def long_flags(self) -> list[str]:
        """The flags that are words."""
        return [flag for flag in self.flags.split() if flag.startswith("--")]

    @property
    def keys(self) -> list[str]:
        """What it is called in a file."""
        return self.key.split() if self.key else [_attribute(flag) for flag in self.long_flags]

    @property
    def takes_value(self) -> bool:
        """Whether it is no switch."""
        return isinstance(self.takes, tuple)

    def words(self, value: object) -> list[str]:
        """What one types to give it a value; True for a switch."""
        flag = self.long_flags[0]
        if not self.takes_value:
            return [flag] if value else []
        if self.count > 1 and isinstance(value, Sequence):
            return [flag, *map(str, value)]
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        return [f"{flag}={','.join(map(str, value)) if is_list else value}"]  # type: ignore[call-overload]

    def add(self, parser: "argparse._ActionsContainer") -> None:
        """Makes a parser know it."""
        given: dict[str, object] = {"dest": self.attribute, "help": self.help or argparse.SUPPRESS}
        if isinstance(self.takes, tuple):
            metavar, read = self.takes
            names = tuple(metavar.split()) if self.count > 1 else metavar
            given |= {"type": read, "metavar": names, "nargs": self.count if self.count > 1 else None}
            if self.adds:
                given["action"] = Export if self.attribute == "env" else _Append
        elif self.takes is True:
            given["action"] = "store_true"
        else:
            given |= {"action": "store_const", "const": self.takes}
        if self.no_effect:
            given["default"] = None
        parser.add_argument(*self.flags.split(), **given)  # type: ignore[arg-type]


class _Append(argparse.Action):
    """Adds the value to a list with commas."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{before},{values}" if isinstance(before, str) else values)


Table = Mapping[str, Sequence[Option]]
"""Options under the titles of --help."""


def _attribute(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
