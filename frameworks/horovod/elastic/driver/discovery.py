"""What a user's script says of the hosts, and what of it is believed. Pure: texts in, hosts out."""

import re
from collections.abc import Mapping

MISSES = 2
"""A host has to be absent from so many outputs in a row before it counts as gone."""
MOST_SLOTS = 4096
"""Of a host. Without --max-np a job starts as many processes as there are slots."""
_NAME = re.compile(r"[A-Za-z0-9_]([\w.-]*\w)?", re.ASCII)
_LINE = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^:\s]+)(:(?P<slots>[0-9]{1,7}))?", re.ASCII)


class DiscoveryError(ValueError):
    """An output cannot be used; the text says why."""


def parse(text: str, slots: int | None) -> dict[str, int]:
    """The hosts of one output: a line for each, "name:slots", or "name" with ``slots``;
    what follows a "#" is skipped. Of a host that has several lines the last one counts.

    Raises:
        DiscoveryError: a line is no host, or a host has no number of slots.
    """
    found: dict[str, int] = {}
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    for line in filter(None, lines):
        match = _LINE.fullmatch(line)
        name = match["name"].strip("[]") if match else ""
        if match is None or (match["name"][0] != "[" and not _NAME.fullmatch(name)):
            raise DiscoveryError(f"{line[:80]!r} is no host; a line is for example node1:4")
        if match["slots"] is None and slots is None:
            raise DiscoveryError(f"{line[:80]!r} has no slots; write {name}:4, or give --slots-per-host")
        count = slots if match["slots"] is None else int(match["slots"])
        if (count or 0) > MOST_SLOTS:
            raise DiscoveryError(f"{line[:80]!r} has more than {MOST_SLOTS} slots")
        found[name] = count or 0
    return {name: count for name, count in found.items() if count}


class Sightings:
    """Takes one output after another. Slots that come are believed at once; those that go, not before they
    are missing in ``MISSES`` outputs in a row: a listing that flaps does not disturb the job.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, int] = {}
        self._missed: dict[str, int] = {}  # outputs in a row that had fewer slots, by host

    def see(self, found: Mapping[str, int]) -> bool:
        """Takes the hosts of an output. Returns whether ``hosts`` has changed."""
        before = self.hosts
        fewer = {
            name: self._missed.get(name, 0) + 1
            for name, count in before.items()
            if found.get(name, 0) < count
        }
        self._missed = {name: times for name, times in fewer.items() if times < MISSES}
        now = {name: count if name in self._missed else found.get(name, 0) for name, count in before.items()}
        now |= {name: count for name, count in found.items() if name not in before}
        self.hosts = {name: count for name, count in now.items() if count}
        return self.hosts != before
