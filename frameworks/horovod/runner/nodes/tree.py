"""Who runs the ssh to which host: the launcher, or agents that are up already. Pure.

Few hosts the launcher dials itself. Of more it dials some, and their agents dial others, as soon as they are
up, so that nobody waits for a host that is slow. The launcher is at depth 0, a host one deeper than who dials
it. A tree is no deeper than one must be that has room for all hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# How many connections of one dialler may be waiting to be let in. From the tenth on sshd drops some
# (MaxStartups 10:30:100), and a jump host has one for each host of the job.
AT_ONCE = 8
# Each level hands on what all below it send, one call within the other. 65,536 hosts have room with a fan-out
# of two.
MOST_LEVELS = 16


@dataclass
class Dialler:
    """Who may dial: the launcher, or a host that is dialled.

    ``hosts`` is how many it has dialled, of which ``logging_in`` are not let in yet. ``is_up``: its agent is
    there. ``is_able``: it has not shown that it reaches no hosts.
    """

    depth: int
    hosts: int = 0
    logging_in: int = 0
    is_up: bool = True
    is_able: bool = True


def depth_for(hosts: int, fan_out: int) -> int:
    """How deep the tree of so many hosts must be, if each dials ``fan_out`` others at most; not deeper than
    MOST_LEVELS: who finds no room there is dialled by the launcher.
    """
    depth, width, room = 1, fan_out, fan_out
    while room < hosts and depth < MOST_LEVELS:
        width *= fan_out
        room += width
        depth += 1
    return depth


def choose(diallers: Sequence[Dialler], fan_out: int, depth: int) -> int | None:
    """Who dials the next host, by position; the launcher is the first. None: nobody has room just now.

    Those that are nearest to the launcher come first, and of them those that have dialled the fewest. When
    nobody is left who may dial another one, the launcher does.
    """
    able = [each for each in diallers if each.is_able and each.depth < depth and each.hosts < fan_out]
    if not able:
        return 0 if diallers[0].logging_in < AT_ONCE else None
    ready = [each for each in able if each.is_up and each.logging_in < AT_ONCE]
    if not ready:
        return None
    return diallers.index(min(ready, key=lambda each: (each.depth, each.hosts)))
