"""The variables that -x passes on to the ranks, of all hosts or of one, and those that nobody may pass on."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence

from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE, IDENTITY, PREEMPTION_VARIABLE

from ..hosts import checked_name

# What the launcher, its agents and the ranks have to agree on.
_OF_THE_JOB = (HOST_TIMEOUT_VARIABLE, PREEMPTION_VARIABLE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET = "HOROVOD_SECRET_"


def assignment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable of ``-x NAME=VALUE``, or of ``-x NAME``, which takes its value from ``environ``. What is
    for the ranks of one host, ``-x HOST:NAME``, keeps its host in front; see ``of_hosts``.

    Raises:
        ValueError: this is no name, or the launcher gives the variable itself, or it is not set.
    """
    key, equals, value = text.partition("=")
    host, _, name = key.rpartition(":")
    if ":" in key:
        checked_name(repr(text), host)
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a variable; write NAME or NAME=VALUE")
    if name.lstrip("_").startswith(_SECRET):
        raise ValueError(f"{name}: horovodrun gives each rank the job's secret by a safer way")
    if name in IDENTITY:
        raise ValueError(f"{name} says who a rank is, and horovodrun sets it")
    if ":" in key and name in _OF_THE_JOB:
        raise ValueError(f"{name} is of the whole job; write it without a host")
    if equals:
        return key, value
    if name not in environ:
        raise ValueError(f"{name} is not set here; set it, or write {key}=VALUE")
    return key, environ[name]


def of_all(exported: Mapping[str, str]) -> dict[str, str]:
    """The variables that ranks on every host get."""
    return {key: value for key, value in exported.items() if ":" not in key}


def of_hosts(exported: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By host: those that only the ranks there get, in addition or instead."""
    found: dict[str, dict[str, str]] = {}
    for key, value in exported.items():
        host, colon, name = key.rpartition(":")
        if colon:
            found.setdefault(checked_name("-x", host), {})[name] = value
    return found


class Export(argparse.Action):
    """Collects variables by name; one that is given again has the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            name, value = assignment(str(values), os.environ)
        except ValueError as error:
            parser.error(f"{option_string}: {error}")
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, {**(before if isinstance(before, dict) else {}), name: value})
