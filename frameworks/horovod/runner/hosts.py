"""The --hosts list: host:slots pairs. This version starts ranks on its own host only."""

import os
import re

_ENTRY = re.compile(r"^(?P<name>[\w.-]+):(?P<slots>[0-9]{1,6})$", re.ASCII)


def local_slots(text: str) -> int:
    """The slots of this host in a list like "localhost:2". Raises ValueError, with a hint, for others."""
    slots = 0
    for entry in text.split(","):
        match = _ENTRY.match(entry.strip())
        if match is None:
            raise ValueError(f"-H {text!r}: {entry!r} is not host:slots; write for example -H localhost:2")
        if not _is_this_host(match["name"]):
            raise ValueError(
                f"-H: {match['name']} is another host; this version starts ranks on this host only"
            )
        slots += int(match["slots"])
    if slots < 1:
        raise ValueError(f"-H {text!r} has no slots; write for example -H localhost:2")
    return slots


def _is_this_host(name: str) -> bool:
    return name.lower() in ("localhost", "127.0.0.1", os.uname().nodename.lower())
