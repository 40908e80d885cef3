"""What is to be started, for every launcher that horovodrun can have do it, and what comes of it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from horovod.bootstrap.start_settings import IDENTITY

from ..hosts import Host

# Of the host or the shell where horovodrun was started; wrong anywhere else.
_OF_THIS_HOST = {"_", "HOSTNAME", "OLDPWD", "PWD", "SHLVL", "TMPDIR", "TERM", "DISPLAY", "MAIL"}
_OF_A_SESSION = ("SSH_", "XDG_", "DBUS_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDI_")
_SECRETS = ("HOROVOD_SECRET_KEY", "_HOROVOD_SECRET_KEY", "HOROVOD_SECRET_SOCKET")
_SECRET_FILE = "HOROVOD_SECRET_FILE"  # the user's own, or of one job
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class LauncherError(ValueError):
    """The launcher cannot start this job; the text says why, and what to do."""


@dataclass(frozen=True)
class Order:
    """What the user has asked for.

    ``hosts``: None leaves the choice to the launcher, which knows the allocation that it runs in.
    ``exported``: names of variables for the ranks, beyond those that they inherit on this host.
    ``binding``: replaces the options that place ranks and bind them to cores; ``extra``: come last.
    """

    command: Sequence[str]
    size: int
    hosts: Sequence[Host] | None = None
    exported: Sequence[str] = ()
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    interfaces: str | None = None
    stdin_rank: int | None = None
    binding: Sequence[str] | None = None
    extra: Sequence[str] = ()
    is_root: bool = False


@dataclass(frozen=True)
class Start:
    """How to start a job: a command line, and variables that the launcher itself needs."""

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def launcher_environment(environ: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launcher: that of the caller and what options add, without who this process is in
    a job that it may belong to, and without that job's secret.
    """
    private = {*IDENTITY, *_SECRETS}
    if environ.get(_SECRET_FILE, "").startswith("/proc/"):  # of a horovodrun that this is a rank of
        private.add(_SECRET_FILE)
    return {name: value for name, value in (dict(environ) | dict(added)).items() if name not in private}


def exported_names(environment: Mapping[str, str], added: Iterable[str]) -> list[str]:
    """Which of a launcher's variables ranks on other hosts are to have: all but those of this host."""
    wanted = set(added)
    return sorted(
        name
        for name in environment
        if _NAME.fullmatch(name)
        and (name in wanted or not (name in _OF_THIS_HOST or name.startswith(_OF_A_SESSION)))
    )
