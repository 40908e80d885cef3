"""The variables that -x passes on to the ranks, and those that nobody may pass on."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence

# Who a process is in its job, and the way to its launcher: of one rank, and of one job.
IDENTITY = (
    *(f"HOROVOD_{scope}{extent}" for scope in ("", "LOCAL_", "CROSS_") for extent in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", "HOROVOD_STORE_ADDR", "HOROVOD_JOB_ID"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET = "HOROVOD_SECRET_"


def assignment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable of ``-x NAME=VALUE``, or of ``-x NAME``, which takes its value from ``environ``.

    Raises:
        ValueError: this is no name, or the launcher gives the variable itself, or it is not set.
    """
    name, equals, value = text.partition("=")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a variable; write NAME or NAME=VALUE")
    if name.lstrip("_").startswith(_SECRET):
        raise ValueError(f"{name}: horovodrun gives each rank the job's secret by a safer way")
    if name in IDENTITY:
        raise ValueError(f"{name} says who a rank is, and horovodrun sets it")
    if equals:
        return name, value
    if name not in environ:
        raise ValueError(f"{name} is not set here; set it, or write {name}=VALUE")
    return name, environ[name]


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
