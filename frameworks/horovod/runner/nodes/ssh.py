"""The system's ssh: the command that starts an agent on another host, and what its failure means."""

import errno
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.bootstrap.paths import absolute
from horovod.bootstrap.text import escaped
from horovod.version import __version__

from . import remote_shell
from .way import PATIENCE

CONFIG_VARIABLE = "HOROVOD_SSH_CONFIG"
_OPTIONS = {
    "BatchMode": "yes",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "RemoteCommand": "none",
    "LogLevel": "VERBOSE",  # tells when it has logged in
    # A connection that the user has is used. One of ours would be a child of the job, and end with it.
    "ControlMaster": "no",
}
# For where the user says nothing: the value by which ssh tells that, and ours.
_DEFAULTS = {
    "ConnectTimeout": ("none", "4"),
    "StrictHostKeyChecking": ("ask", "accept-new"),  # nobody could answer
}
_ALIVE = 3  # of so many signs of life that ssh misses it makes the end of a connection
_LINES = 3
_OWN_STATUS = 255  # of ssh, where no program there has one to tell
# What ssh tells of a connection in order (LogLevel VERBOSE): no reason for anything.
_NOTICE = re.compile(r"Warning: Permanently added |Authenticated to |Transferred: |Bytes per second: ")
_PORT = re.compile(r"\bport [0-9]+")
_LOGGED_IN = re.compile(r"^Authenticated to ", re.MULTILINE)
# What the sshd of a host, or of a jump host, does with too many who have not logged in yet (MaxStartups).
_DROPPED = re.compile(
    r"kex_exchange_identification|ssh_exchange_identification|Connection closed by|reset by"
)
# Where a login happens to be is no place to look for modules.
_START = "import sys; del sys.path[0]; from horovod.runner.nodes import agent; agent.main()"


@dataclass(frozen=True)
class Target:
    """A host, and what the user says of the way there; None: nothing. Files are named by whole paths.
    ``shell``: the words of a command that takes the place of ssh, see ``remote_shell``; none: ssh. After
    ``patience`` seconds without an answer the host counts as lost.
    """

    host: str
    port: int | None = None
    identity_file: str | None = None
    config: str | None = None
    shell: Sequence[str] = ()
    patience: float = PATIENCE


def target(
    host: str,
    port: int | None = None,
    identity_file: str | None = None,
    shell: Sequence[str] = (),
    patience: float = PATIENCE,
) -> Target:
    """By these, and by the environment."""
    config = _whole(os.environ.get(CONFIG_VARIABLE))
    return Target(host, port, _whole(identity_file), config, shell, patience)


def command(target: Target, is_relayed: bool = False) -> list[str]:
    """Starts the agent with the Python of this process. Asks nobody anything, and there are no passwords.

    A host that is seen for the first time is accepted, unless the user's configuration says otherwise, and
    one whose key has changed is not. A relay (``is_relayed``) accepts only keys that it knows: the launcher
    may know another one. Raises FileNotFoundError where there is no ssh.
    """
    if target.shell:
        return remote_shell.command(target.shell, target.host)
    if shutil.which("ssh") is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "ssh")
    interval = math.ceil(target.patience / _ALIVE)
    defaults = {**_DEFAULTS, "ServerAliveInterval": ("0", str(interval))}
    if is_relayed:
        del defaults["StrictHostKeyChecking"]
    agent = shlex.join([*remote_shell.module_paths(os.environ), sys.executable, "-c", _START])
    return ["/bin/sh", "-c", _script(defaults), f"exec {agent}", *_where(target)]


def _script(defaults: Mapping[str, tuple[str, str]]) -> str:
    """Becomes ssh, to the host that the script's arguments name; its name is the command for that host.

    What is said on the command line of ssh overrides the user's configuration, so ``defaults`` are said only
    where that leaves them as ssh has them. It is asked here, so that nobody else waits for the answers, and
    those of many hosts come at the same time.
    """
    lines = ['answer="', '$(ssh -G -T "$@" </dev/null 2>/dev/null)', '"', "options="]
    for name, (of_ssh, ours) in defaults.items():
        pattern = f'*"\n{name.lower()} {of_ssh}\n"* | "\n\n"'  # nothing: an old ssh tells nothing
        lines.append(f'case $answer in {pattern}) options="$options -o{name}={ours}" ;; esac')
    fixed = " ".join(f"-o{name}={value}" for name, value in _OPTIONS.items())
    return "\n".join([*lines, f'exec ssh -T {fixed} $options "$@" "$0"'])


def _whole(path: str | None) -> str | None:
    """A path that holds in any folder. Of "~" and "none" ssh makes something itself."""
    return absolute(path) if path and path != "none" and not path.startswith("~") else path or None


def _where(target: Target) -> list[str]:
    words = []
    if target.config is not None:
        words += ["-F", target.config]
    if target.port is not None:
        words += ["-p", str(target.port)]
    if target.identity_file is not None:
        words += ["-i", target.identity_file, "-oIdentitiesOnly=yes"]
    return [*words, "--", target.host]


def has_logged_in(errors: str) -> bool:
    """Whether the host has let ssh in, by what it has written."""
    return _LOGGED_IN.search(errors) is not None


def was_dropped(target: Target, errors: str) -> bool:
    """Whether sshd closed the connection before anybody could log in: another try may have more luck."""
    if target.shell:
        return False
    return _DROPPED.search(errors) is not None and not has_logged_in(errors)


# By what has been written until the host has let ssh in, and from then on.
_BEFORE_LOGIN = (
    (r"Can't open user config file|[Bb]ad configuration option", "ssh cannot use your configuration of ssh"),
    (
        r"No \w+ host key is known for",
        "its key is not known here, and your configuration of ssh accepts no new one "
        "(StrictHostKeyChecking): put its key into known_hosts",
    ),
    (
        r"HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "its key is not the one that known_hosts has. If it was installed anew, take the old key out with "
        "ssh-keygen -R {name}; if not, somebody else answers in its place",
    ),
    (
        r"(?s)Identity file \S+ not accessible.*Permission denied",
        "there is no such file as -i names, and it accepts no other key",
    ),
    (r": bad permissions", "ssh uses no key that others can read: take their rights away with chmod 600"),
    (
        r"Permission denied",
        "it accepts none of your keys: name one with -i, or make it known there with ssh-copy-id {name}",
    ),
    (r"Connection refused", "nothing listens at {port}: does sshd run there? -p names another port"),
    (r"Could not resolve|Name or service not known", "there is no host of that name"),
    (r"timed out|No route to host|unreachable", "it does not answer at {port}"),
    (
        _DROPPED.pattern,
        "its sshd closes connections before the login: it takes no more at a time (MaxStartups in its "
        "sshd_config), or none from this host",
    ),
)
_AFTER_LOGIN = (
    (
        r"No module named '?horovod\.|cannot import name 'agent'",
        "horovod for {python} there is of another version: install {version}, as here",
    ),
    (r"No module named '?horovod", "horovod is not installed for {python} there, as it is here"),
    (r"No such file|not found", "{python} is not there: install Python and horovod at the same place"),
)


def explain(target: Target, status: int | None, errors: str) -> str:
    """Why no agent came up on a host, in one line: what ssh and the login there have written tells it."""
    if target.shell:
        return remote_shell.explain(target.shell, status, errors)
    used = _PORT.search(errors)  # of a jump host, it may be
    port = used[0] if used else f"port {target.port}" if target.port else "its port for ssh"
    names = {"name": target.host, "port": port, "python": sys.executable, "version": __version__}
    lines = [line for line in _lines(errors) if not line.startswith("@")]
    said = escaped("; ".join(lines[-_LINES:]))
    for pattern, meaning in _AFTER_LOGIN if has_logged_in(errors) else (*_BEFORE_LOGIN, *_AFTER_LOGIN):
        if re.search(pattern, errors):
            return f"{meaning.format(**names)} ({said})"
    if status == 0:
        return "its login has ended before an agent has started: do its scripts (~/.bashrc) end it?"
    return f"ssh ended with status {status}{f' ({said})' if said else ''}"


def farewell(target: Target, status: int | None, errors: str, here: str = "here") -> str:
    """Why an agent is gone that had come up; ``here`` is where its ssh ran."""
    if target.shell:
        return remote_shell.farewell(target.shell, status, errors)
    lines = [escaped(line) for line in _lines(errors)]
    said = f" ({'; '.join(lines[-_LINES:])})" if lines else ""
    if status == _OWN_STATUS:  # so it is too, when a signal has ended the agent
        return f"the agent of horovodrun there was killed, or the connection of ssh broke{said}"
    if status is not None and status < 0:
        return f"the ssh {here} that leads to it was killed by signal {-status}{said}"
    return f"its agent ended with status {status}{said}"


def _lines(errors: str) -> list[str]:
    lines = (line.strip() for line in errors.splitlines())
    return [line for line in lines if line and not _NOTICE.match(line)]
