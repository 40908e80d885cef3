"""The system's ssh: the command that starts an agent on another host, and what its failure means."""

import os
import re
import shlex
import sys

from horovod.bootstrap.text import escaped

CONFIG_VARIABLE = "HOROVOD_SSH_CONFIG"
_CONNECT_SECONDS = 4
_ALIVE_SECONDS = 3
_LINES = 3
# Of a host that is seen for the first time: no reason for anything.
_NOTICE = "Warning: Permanently added "
# Where a login happens to be is no place to look for modules.
_START = "import sys; del sys.path[0]; from horovod.runner.nodes import agent; agent.main()"


def command(host: str, port: int | None, identity_file: str | None) -> list[str]:
    """Starts the agent with the Python of this process. Asks nobody anything: a host that is seen for the
    first time is accepted, one whose key has changed is not, and there are no passwords.
    """
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "ConnectTimeout": _CONNECT_SECONDS,
        "ServerAliveInterval": _ALIVE_SECONDS,
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        # A connection that the user has is used. One of ours would be a child of the job, and end with it.
        "ControlMaster": "no",
    }
    words = ["ssh", "-T", *(f"-o{name}={value}" for name, value in options.items())]
    if os.environ.get(CONFIG_VARIABLE):
        words += ["-F", os.environ[CONFIG_VARIABLE]]
    if port is not None:
        words += ["-p", str(port)]
    if identity_file is not None:
        words += ["-i", identity_file, "-oIdentitiesOnly=yes"]
    return [*words, "--", host, f"exec {shlex.join([sys.executable, '-c', _START])}"]


_MEANINGS = (
    (
        r"HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "its key is not the one that known_hosts has. If it was installed anew, take the old key out with "
        "ssh-keygen -R {name}; if not, somebody else answers in its place",
    ),
    (
        r"Permission denied",
        "it accepts none of your keys: name one with -i, or make it known there with ssh-copy-id {name}",
    ),
    (r"Connection refused", "nothing listens at {port}: does sshd run there? -p names another port"),
    (r"Could not resolve|Name or service not known", "there is no host of that name"),
    (r"timed out|No route to host|unreachable", "it does not answer at {port}"),
    (r"No module named '?horovod", "horovod is not installed for {python} there, as it is here"),
    (r"No such file|not found", "{python} is not there: install Python and horovod at the same place"),
)


def explain(host: str, port: int | None, status: int | None, errors: str) -> str:
    """Why no agent came up on a host, in one line: what ssh and the login there have written tells it."""
    place = f"port {port or 22}"
    lines = [line for line in _lines(errors) if not line.startswith("@")]
    said = escaped("; ".join(lines[-_LINES:]))
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, errors):
            return f"{meaning.format(name=host, port=place, python=sys.executable)} ({said})"
    return f"ssh ended with status {status}{f' ({said})' if said else ''}"


def farewell(status: int | None, errors: str) -> str:
    """Why an agent is gone that had come up."""
    lines = [escaped(line) for line in _lines(errors)]
    said = f" ({'; '.join(lines[-_LINES:])})" if lines else ""
    if status == 255 and not lines:  # what ssh says of a program that a signal has ended
        return "the agent of horovodrun there was killed, or the connection of ssh broke"
    return f"its agent ended with status {status}{said}"


def _lines(errors: str) -> list[str]:
    lines = (line.strip() for line in errors.splitlines())
    return [line for line in lines if line and not line.startswith(_NOTICE)]
