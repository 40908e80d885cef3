"""How the ranks decide, in the exchange that every commit makes anyway, to write a checkpoint of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

SMALL_BYTES = 1 << 20
"""A tensor of less is written by rank 0."""


class Note(NamedTuple):
    """What a rank tells the others at a commit.

    ``commit``: its number. ``is_busy``: it still writes the one before. ``sees``: the token that it finds in
    the lock of the folder, "" for none. ``failed``: the folder of the last checkpoint whose part it could not
    write. Of rank 0 alone: ``name``, the folder to write to, "" for no checkpoint; ``token``, of its lock;
    ``is_large``, whether all ranks shall write; ``durable``, the newest commit that is on disk.
    """

    commit: int
    is_busy: bool = False
    sees: str = ""
    failed: str = ""
    name: str = ""
    token: str = ""
    is_large: bool = False
    durable: int = -1


class Plan(NamedTuple):
    """Write a checkpoint to the folder ``name``; each of ``writers``, ascending ranks, a part of it."""

    name: str
    writers: tuple[int, ...]


def plan(notes: Mapping[int, Note], size: int) -> Plan | None:
    """What the ranks do, the same on all of them; None for nothing.

    Args:
        notes: by rank. Ranks that have joined give none: they have not committed this.
        size: how many ranks there are.
    """
    if len(notes) < size or not notes[0].name:
        return None
    if any(note.is_busy or note.commit != notes[0].commit for note in notes.values()):
        return None
    # A rank that does not see the lock is on a host with another folder of that name.
    sees_all = all(note.sees == notes[0].token for rank, note in notes.items() if rank)
    writers = tuple(sorted(notes)) if notes[0].is_large and sees_all else (0,)
    return Plan(notes[0].name, writers)


def decode_notes(told: Mapping[int, Any]) -> dict[int, Note] | None:
    """From the exchange; None when a rank has no checkpoints."""
    if any(note is None for note in told.values()):
        return None
    return {rank: Note(*note) for rank, note in told.items()}


def dealt(sizes: Mapping[str, int], writers: int) -> list[list[str]]:
    """Which tensors each of so many writers writes, so that all have about as many bytes. Depends on names
    and sizes alone, so all ranks agree. Small ones are all of the first: among them are those that differ
    between ranks, as the statistics of batches do, and they are to be those of one rank.
    """
    shares: list[list[str]] = [[] for _ in range(writers)]
    totals = [0] * writers
    for name in sorted(sizes, key=lambda each: (-sizes[each], each)):
        index = totals.index(min(totals)) if sizes[name] >= SMALL_BYTES else 0
        shares[index].append(name)
        totals[index] += sizes[name]
    return shares
