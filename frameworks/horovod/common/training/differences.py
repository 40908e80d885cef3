"""In what the ranks differ that should have the same. Digests travel, and what they are of where they are not
equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from horovod import _core
from horovod.common.set_agreement import exchange, listed, ranks_text

Facts = Mapping[str, str]
"""Texts by label."""

_MOST_VARIANTS = 4  # that are shown when all ranks differ
_MOST_DIFFERENCES = 5


def digest_of(content: Any) -> str:
    """Of lists, numbers and text."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def compare(
    facts: Facts,
    name: str,
    process_set: int,
    problem: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> str | None:
    """In what the ranks differ, as ``differences`` says it; None if in nothing. A small collective ``name``.

    Args:
        facts: of this rank.
        name: of the operation.
        process_set: the ranks.
        problem: what keeps this rank from going on; its facts do not matter then.
        labels: what this rank calls the facts, where that is not their own label.

    Raises:
        ValueError: some rank has a problem; on all ranks.
    """
    answers = exchange([problem, digest_of(sorted(facts.items()))], name, process_set)
    common = common_problem({rank: theirs for rank, (theirs, _) in answers.items()})
    if common is not None:
        raise ValueError(common)
    digests = {rank: digest for rank, (_, digest) in answers.items()}
    if len(set(digests.values())) == 1:
        return None
    described = variants([dict(facts), dict(labels or {})], digests, name, process_set)
    called: dict[str, str] = {}
    for _, (_, theirs) in sorted(described.items(), reverse=True):
        called.update(theirs)  # of two ranks that call it differently, the first counts
    found = {
        rank: {called.get(label, label): value for label, value in theirs.items()}
        for rank, (theirs, _) in described.items()
    }
    return differences(found, sorted(digests.keys() - described.keys()))


def variants(mine: Any, digests: dict[int, str], name: str, process_set: int) -> dict[int, Any]:
    """What the ranks have whose ``digests`` were exchanged and differ, by rank; without those of rare kinds,
    if there are many. A collective ``name``: one rank of each kind sends its own.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, digest in sorted(digests.items()):
        ranks_of.setdefault(digest, []).append(rank)
    shown = list(ranks_of.values())[:_MOST_VARIANTS]
    is_sender = _core.topology()[0] in [ranks[0] for ranks in shown]
    answers = exchange(mine if is_sender else None, name, process_set)
    return {rank: answers[ranks[0]] for ranks in shown for rank in ranks}


def differences(facts: Mapping[int, Facts], others: list[int]) -> str:
    """Sentences without a beginning: which ``facts`` differ, and who has what. ``others``: ranks whose facts
    are still other ones.
    """
    found = []
    for label in dict.fromkeys(label for theirs in facts.values() for label in theirs):
        values = {rank: theirs.get(label, "nothing") for rank, theirs in facts.items()}
        if len(set(values.values())) > 1:
            found.append(f"{label} ({listed(values)})")
    shown = "; ".join(found[:_MOST_DIFFERENCES]) or "the order of its parts"
    more = len(found) - _MOST_DIFFERENCES
    rest = f"; {more} more" if more > 0 else ""
    return f"{shown}{rest}." + (f" {ranks_text(others).capitalize()} differ from these." if others else "")


def common_problem(problems: Mapping[int, str | None]) -> str | None:
    """One text of what keeps ranks from going on, by rank; None where nothing does. What keeps all from it is
    said once.
    """
    found = {rank: problem for rank, problem in sorted(problems.items()) if problem}
    if not found:
        return None
    alike = len(found) == len(problems) and len(set(found.values())) == 1
    return next(iter(found.values())) if alike else listed(found)
