"""The hosts of a job: host:slots pairs, or a file of them. This version starts ranks on its own host only."""

import os
import re
from pathlib import Path

_ENTRY = re.compile(r"^(?P<name>[\w.-]+):(?P<slots>[0-9]{1,6})$", re.ASCII)
_LINE = re.compile(r"^(?P<name>[\w.-]+)(\s+slots\s*=\s*(?P<slots>[0-9]{1,6}))?$", re.ASCII)


def local_slots(text: str) -> int:
    """The slots of this host in a list like "localhost:2". Raises ValueError, with a hint, for others."""
    slots = 0
    for entry in text.split(","):
        match = _ENTRY.match(entry.strip())
        if match is None:
            raise ValueError(f"-H {text!r}: {entry!r} is not host:slots; write for example -H localhost:2")
        slots += _slots("-H", match["name"], match["slots"])
    if slots < 1:
        raise ValueError(f"-H {text!r} has no slots; write for example -H localhost:2")
    return slots


def slots_in_file(path: str) -> int:
    """The slots of this host in a file of lines like "localhost slots=2"; without slots= there is one.
    Raises ValueError, with a hint, for others.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"--hostfile {path}: {error.strerror}") from None
    slots = 0
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.match(text)
        if match is None:
            raise ValueError(f'{path}:{number}: {text!r} is no host; write for example "localhost slots=2"')
        slots += _slots(f"{path}:{number}", match["name"], match["slots"] or "1")
    if slots < 1:
        raise ValueError(f'{path} has no slots; write for example "localhost slots=2"')
    return slots


def _slots(where: str, name: str, slots: str) -> int:
    if name.lower() not in ("localhost", "127.0.0.1", os.uname().nodename.lower()):
        raise ValueError(f"{where}: {name} is another host; this version starts ranks on this host only")
    return int(slots)
