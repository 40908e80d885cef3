"""The arguments of horovod.run as options of horovodrun, and back where horovodrun refuses one. Pure."""

import re
from collections.abc import Mapping
from typing import Any

_FLAGS = {
    "num_proc": "--num-proc",
    "min_num_proc": "--min-num-proc",
    "max_num_proc": "--max-num-proc",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "output_filename": "--output-filename",
    "network_interfaces": "--network-interfaces",
    "mpi_args": "--mpi-args",
}
_SWITCHES = {
    "disable_cache": "--disable-cache",
    "verbose": "--verbose",
    "use_gloo": "--gloo",
    "use_mpi": "--mpi",
}
_SHORT = {
    "num_proc": ("-np", "-n"),
    "min_num_proc": ("--min-np",),
    "max_num_proc": ("--max-np",),
    "hosts": ("-H",),
    "ssh_port": ("-p",),
    "ssh_identity_file": ("-i",),
}
_EITHER = (("hosts", "hostfile"), ("use_gloo", "use_mpi"))
_LAUNCHERS_WORDS = re.compile(r"^horovodrun: error: | \(see horovodrun --help\)$")


def words(given: Mapping[str, Any]) -> list[str]:
    """The options of horovodrun for arguments by name; None and False ask for nothing.

    Raises ValueError for two that exclude each other.
    """
    for one, other in _EITHER:
        if given.get(one) and given.get(other):
            raise ValueError(f"horovod.run: {one} and {other} exclude each other: give one of them")
    found = [flag for name, flag in _SWITCHES.items() if given.get(name)]
    for name, flag in _FLAGS.items():
        value = given.get(name)
        if value is None:
            continue
        if name == "cooldown_range":
            found += [flag, *map(str, value)]
        else:
            is_list = name == "network_interfaces" and not isinstance(value, str)
            found.append(f"{flag}={','.join(value) if is_list else value}")
    return found


def refusal(text: str) -> str:
    """What horovodrun says against its options, for somebody who gave arguments."""
    message = _LAUNCHERS_WORDS.sub("", text.strip())
    for name, flag in (_FLAGS | _SWITCHES).items():
        for spelling in (flag, *_SHORT.get(name, ())):
            word = rf"(?<![\w-]){re.escape(spelling)}(?![\w-])"
            message = re.sub(rf"{word} (?=\d)", f"{name}=", message)
            message = re.sub(word, name, message)
    return f"horovod.run: {message}"
